import json, os, sys
from importlib.machinery import ModuleSpec
size, text = int(sys.argv[1]), b""
while len(text) < size:
    text += os.read(0, size - len(text)) or sys.exit(1)
class Finder:
    sources = json.loads(text)
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return ModuleSpec(name, cls) if name in cls.sources else None
    @staticmethod
    def create_module(spec):
        return None
    @classmethod
    def exec_module(cls, module):
        name = module.__name__
        exec(compile(cls.sources[name], name + ".py", "exec"), module.__dict__)
sys.meta_path.insert(0, Finder)
import main
