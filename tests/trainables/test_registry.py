"""Entries of this package and of installed packages: imported when used, with declared settings."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from tests.packages import installed
from trainables import layers
from trainables.declare import source
from trainables.errors import Refusal
from trainables.registry import DeclaredRegistry, Registry, subclass_of
from trainables.settings import LayerSettings

MakeRegistry = Callable[..., "Registry[int]"]
MakeDeclared = Callable[..., "DeclaredRegistry[type, LayerSettings]"]


def whole(entry: object) -> int:
    if not isinstance(entry, int):
        raise TypeError("it must be a whole number")
    return entry


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Install a package of some modules; its modules are forgotten after the test."""

    def install(modules: dict[str, str], **points: str) -> None:
        folder = installed(tmp_path, {"numbers": points}, modules, "bits")
        monkeypatch.syspath_prepend(str(folder))
        for path in modules:
            module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
            monkeypatch.setitem(sys.modules, module, ModuleType(module))
            del sys.modules[module]

    return install


@pytest.fixture
def registry(install: Callable[..., None]) -> MakeRegistry:
    def make(modules: dict[str, str], **points: str) -> Registry[int]:
        install({"small.py": "one = 1", **modules}, **points)
        return Registry({"one": "small:one"}, "numbers", whole)

    return make


@pytest.fixture
def declared(install: Callable[..., None]) -> MakeDeclared:
    def make(source: str) -> DeclaredRegistry:
        """Return a registry with one class of another package."""
        install({"fading.py": f"from trainables.settings import *\n{source}"}, fading="fading:Fading")
        accept = subclass_of("builtins:list")
        return DeclaredRegistry({}, "numbers", accept, declared=LayerSettings, generated={})

    return make


def test_entries_are_imported_when_their_name_is_used(registry: MakeRegistry) -> None:
    entries = registry({"counted.py": "two = 2"}, two="counted:two")
    assert list(entries) == ["one", "two"]
    assert len(entries) == 2
    assert "two" in entries
    assert "three" not in entries
    assert not {"counted", "small"} & sys.modules.keys()
    assert entries["two"] == 2
    assert "counted" in sys.modules
    assert "small" not in sys.modules
    assert entries["one"] == 1
    with pytest.raises(KeyError):
        entries["three"]


def test_a_class_that_leaves_a_method_out_is_refused(install: Callable[..., None]) -> None:
    lacking = "from collections.abc import Sized\nclass Fading(Sized):\n    pass\n"
    install({"lacking.py": lacking}, fading="lacking:Fading")
    entries = Registry({}, "numbers", subclass_of("collections.abc:Sized"))
    with pytest.raises(Refusal, match=r"lacking:Fading.*it must define __len__"):
        entries["fading"]


def test_a_subclass_of_either_base_is_accepted(install: Callable[..., None]) -> None:
    install(
        {"both.py": "class One(list):\n    pass\nclass Two(dict):\n    pass\n"},
        one="both:One",
        two="both:Two",
    )
    entries = Registry({}, "numbers", subclass_of("builtins:list", "builtins:dict"))
    assert [entries[name].__name__ for name in entries] == ["One", "Two"]
    with pytest.raises(Refusal, match=r"subclass of builtins\.list"):
        Registry({}, "numbers", subclass_of("builtins:list"))["two"]


def test_the_package_of_an_entry_is_known(registry: MakeRegistry) -> None:
    entries = registry({"counted.py": "two = 2"}, two="counted:two")
    assert entries.package("one") is None
    assert entries.package("two") == "bits==1.0"


@pytest.mark.parametrize(
    ("module", "value", "got"),
    [
        ("import nothing_of_the_kind", "broken:two", "ModuleNotFoundError"),
        ("two = 'zwei'", "broken:two", "it must be a whole number"),
        ("two = 2", "broken:three", "AttributeError"),
        ("raise RuntimeError('at import')", "broken:two", "RuntimeError: at import"),
    ],
)
def test_a_broken_package_is_named_when_its_entry_is_used(
    registry: MakeRegistry, module: str, value: str, got: str
) -> None:
    entries = registry({"broken.py": module}, two=value)
    assert entries["one"] == 1
    with pytest.raises(Refusal, match=got) as refused:
        entries["two"]
    assert str(refused.value).startswith(f"entry point numbers: two = {value} of bits cannot be loaded (got ")


def test_a_name_that_is_taken_is_refused(registry: MakeRegistry) -> None:
    entries = registry({"counted.py": "one = 11"}, one="counted:one")
    with pytest.raises(Refusal, match=r"must have a unique name \(got 'one'\)"):
        list(entries)


def test_only_subclasses_of_the_base_are_admitted() -> None:
    accept = subclass_of("collections.abc:Sized")
    assert accept(dict) is dict
    for wrong in (int, {}):
        with pytest.raises(TypeError, match=r"it must be a subclass of collections\.abc\.Sized"):
            accept(wrong)


def test_the_settings_of_an_own_class_are_known_without_an_import() -> None:
    settings = LayerSettings("Fades.")
    own, generated = {"fading": "nowhere:Fading"}, {"nowhere:Fading": settings}
    accept = subclass_of("builtins:list")
    entries = DeclaredRegistry(own, "numbers", accept, declared=LayerSettings, generated=generated)
    assert entries.settings("fading") is settings
    with pytest.raises(KeyError):
        entries.settings("rising")


def test_the_settings_of_a_class_of_another_package_are_its_attribute(declared: MakeDeclared) -> None:
    body = "settings = LayerSettings('Fades.', {'heads': Option(4, 'Heads.')}, needs=(EVEN,))"
    read = declared(f"class Fading(list):\n    {body}").settings("fading")
    assert read.default("heads") == 4
    assert read.needs[0].holds(8)


@pytest.mark.parametrize(
    ("module", "got"),
    [
        ("class Fading(list):\n    settings = Option(1, 'Wrong.')", "Option"),
        ("class Fading(list):\n    pass", "NoneType"),
        ("class Fading(list):\n    settings = LayerSettings()", "TypeError"),
        ("class Fading:\n    settings = LayerSettings('Fades.')", "it must be a subclass"),
    ],
)
def test_a_wrong_declaration_is_refused(declared: MakeDeclared, module: str, got: str) -> None:
    with pytest.raises(Refusal) as refused:
        declared(module).settings("fading")
    assert got in refused.value.got
    assert "fading = fading:Fading of bits" in refused.value.where


def test_the_generated_module_is_that_of_the_classes() -> None:
    file = Path(layers.__file__).with_name("declared.py")
    assert file.read_text("utf-8") == source([layers.LAYERS]), "See trainables/declare.py."
