// A printer has no clicks: everything that is folded is open while the page is printed.
(() => {
  let opened = [];
  addEventListener('beforeprint', () => {
    opened = [...document.querySelectorAll('details:not([open])')];
    opened.forEach(fold => { fold.open = true; });
  });
  addEventListener('afterprint', () => opened.forEach(fold => { fold.open = false; }));
})();
