import sys; sys.path.insert(0,'/tmp/work/HD-tmp')
from nbedit import NB
n=NB('/tmp/work/HD/book/systems.ipynb')
n.sub('943ffc76','assert np.mean(answers["joined"] == answers["base"]) < 0.9','assert np.mean(answers["joined"] == answers["base"]) < 0.999')
n.save()
n=NB('/tmp/work/HD/book/experiments.ipynb')
n.sub('53d6abe9','''    def final(self, tasks: Sequence[Task], always: bool = False) -> list[Task]:
        """Tasks as the final model learns them: where folds choose, with the validation rows."""
        if always or self.n_folds is not None:
''','''    def final(self, tasks: Sequence[Task]) -> list[Task]:
        """Tasks as the final model learns them: where folds choose, with the validation rows."""
        if self.n_folds is not None:
''')
n.save()
