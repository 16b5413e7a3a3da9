# SPDX-License-Identifier: Apache-2.0
"""Messages of C files as templates, and the option that decides about a place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmtailor.analysis.ksource import printk_calls
from vmtailor.analysis.ksource.conditions import without_comments
from vmtailor.analysis.ksource.expr_text import parse
from vmtailor.analysis.ksource.kbuild import linked_files
from vmtailor.analysis.ksource.own_option import own_option
from vmtailor.analysis.printk import templates

D, X, S, C = templates.DECIMAL, templates.HEX, templates.TEXT, templates.CHARACTER


def found(source: str, names: tuple[str, ...] = ("mod",)) -> list[printk_calls.PrintedMessage]:
    text = without_comments(source)
    return list(printk_calls.messages(text, printk_calls.macros(text), [], names))


@pytest.mark.parametrize(
    ("source", "template"),
    [
        ('pr_info("%d of %s at %#lx, %c\\n", a, b, c, d);', f"{D} of {S} at {X}, {C}"),
        ('#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt\nvoid f(void) {\npr_info("up");\n}', "mod: up"),
        (
            '#define KMSG_COMPONENT "IPVS"\n#define pr_fmt(fmt) KMSG_COMPONENT ": " fmt\nint x = pr_err("no");',
            "IPVS: no",
        ),
        ('#define pr_fmt(fmt) "%s: " fmt, __func__\nint x = pr_err("no");', f"{S}: no"),
        ('printk(KERN_INFO PFX "ready\\n");', f"{S}ready"),
        ('#define PFX "x25: "\nprintk(KERN_INFO PFX "ready\\n");', "x25: ready"),
        ('#define A "tun"\n#define V "1.6"\npr_info("%s, %s\\n", A, V);', "tun, 1.6"),
        ('static const char name[] = "802.1Q";\nint f = pr_info("%s v%s\\n", name, ver);', f"802.1Q v{S}"),
        ('panic("no %s", x);', f"Kernel panic - not syncing: no {S}"),
        ('dev_info(&p->dev, "up in %u ms\\n", ms);', f"up in {D} ms"),
        ('drm_info(x, "100%% of %pM\\n", y);', f"100% of {S}"),
        ('pr_warn("a (b) \\"c\\"" " d, e" ";\\n");', 'a (b) "c" d, e;'),
        ('pr_info("one"\n#ifdef CONFIG_A\n" and a"\n#else\n" not a"\n#endif\n"\\n");', f"one{S}"),
        ('x(pr_notice_once("%s", "fixed"));', "fixed"),
        ('ACPI_INFO(("%u tables are loaded", count));', f"{D} tables are loaded"),  # parentheses of their own
        ('ACPI_WARNING((AE_INFO, "no table %4.4s", name));', f"no table {S}"),
        ('WARN((a && b), "both are set");', "both are set"),
    ],
)
def test_a_message_is_read(source: str, template: str) -> None:
    assert [one.template for one in found(source)] == [template]


@pytest.mark.parametrize(
    "source",
    [
        'seq_printf(m, "nothing %d\\n", x);', 'snprintf(b, n, "nothing");', 'pr_debug("nothing\\n");',
        'pr_cont("nothing");', 'MODULE_LICENSE("nothing");', "pr_info(text);", 'printk(KERN_CONT "nothing");',
        '#define log(x) pr_info("nothing %s", x)', '/* pr_info("nothing"); */', 'pr_info("never closed',
        'NL_SET_ERR_MSG(e, "nothing");', 'dev_dbg(d, "nothing");', 'printf_buf(b, "nothing");',
    ],
)  # fmt: skip
def test_what_prints_nothing_is_passed_over(source: str) -> None:
    assert found(source) == []


def test_a_message_of_several_lines_is_one_template_each() -> None:
    assert [(one.template, one.whole) for one in found('pr_info("first\\nsecond\\n");')] == [
        ("first", True),
        ("second", True),
    ]
    assert [(one.template, one.whole) for one in found('pr_info("first\\nbegun ");')] == [
        ("first", True),
        ("begun", False),
    ]


def test_messages_of_functions_that_run_once_only_say_that_something_begins() -> None:
    source = """
static int __init foo_init(void)
{
	pr_info("foo: loaded\\n");
	pr_err("foo: failed\\n");
}

static int foo_probe(struct device *dev)
{
	pr_info("foo: found\\n");
}
"""
    assert {one.template: one.begins for one in found(source)} == {
        "foo: loaded": True, "foo: failed": False, "foo: found": False,
    }  # fmt: skip


def test_messages_behind_a_device_may_stand_behind_any_prefix() -> None:
    kinds = {
        one.template: one.floating
        for one in found('dev_info(d, "aa");netdev_warn(d, "bb");btrfs_info(i, "cc");pr_info("dd");')
    }
    assert kinds == {"aa": True, "bb": True, "cc": True, "dd": False}


def test_an_error_of_a_device_is_known_as_one() -> None:
    source = 'void f(void) {\ndev_err(d, "no clock");\ndev_info(d, "a clock");\npr_err("no clock at all");\n}'
    assert [one.device_error for one in found(source)] == [True, False, False]


def test_a_panic_does_not_say_that_something_begins() -> None:
    source = 'static int __init f(void)\n{\npanic("no memory");\nprintk("some memory");\n}\n'
    assert [one.begins for one in found(source)] == [False, True]


def test_every_name_of_a_module_stands_for_its_prefix() -> None:
    source = '#define pr_fmt(f) KBUILD_MODNAME ": " f\nint x = pr_info("up");'
    assert [one.template for one in found(source, ("one", "two"))] == ["one: up", "two: up"]


def test_names_of_drivers_and_initcalls_are_found() -> None:
    text = """
static struct pci_driver foo_driver = {
	.name = DRV_NAME,
};
module_pci_driver(foo_driver);
late_initcall(bar_setup);
static struct platform_driver two = { .driver = { .name = "two-port" } };
"""
    assert [name for name, _ in printk_calls.drivers(text, {"DRV_NAME": '"foo"'})] == ["foo", "two-port"]
    assert sorted(name for name, _ in printk_calls.initcalls(text)) == ["bar_setup", "foo_driver_init"]


FOLDERS = {
    "PCI": {"drivers/pci"}, "E1000E": {"drivers/net/ethernet/intel"}, "IP_MULTICAST": {"net/ipv4"}, "INET": {"net"},
    "X86_IO_APIC": {"arch/x86"}, "KVM_SMM": {"arch/x86/kvm"},
}  # fmt: skip


@pytest.mark.parametrize(
    ("file", "line", "path", "options"),
    [
        ("NET && NETFILTER && IP_VS", "1", "net/netfilter/ipvs/ip_vs_conn.c", ("IP_VS",)),
        ("NET_VENDOR_INTEL && E1000E", "PCI", "drivers/net/ethernet/intel/e1000e/netdev.c", ("E1000E",)),
        ("NET && INET", "IP_MULTICAST", "net/ipv4/igmp.c", ("IP_MULTICAST",)),
        ("PCI", "X86_IO_APIC", "arch/x86/pci/irq.c", ("PCI",)),
        ("KVM", "KVM_SMM", "arch/x86/kvm/x86.c", ("KVM_SMM",)),
        ("1", "SMP", "mm/percpu.c", ("SMP",)),
        ("1", "!SMP", "mm/percpu.c", ()),
        ("1", "1", "init/main.c", ()),
        ("A || B", "1", "x/y.c", ("A", "B")),
        ("A || B || C || D", "1", "x/y.c", ()),
        ("(NET && BRIDGE=y && NF=y) || (NET && BRIDGE && NF=m)", "1", "net/bridge/nf.c", ("NF",)),
        ("CPU_IDLE || ?", "1", "arch/arm/kernel/cpuidle.c", ("CPU_IDLE",)),  # a way that cannot be read
        ("?", "1", "arch/arm/kernel/setup.c", ()),
        ("MD && BLK_DEV_MD=y && !MODULE", "?", "drivers/md/md-autodetect.c", ("BLK_DEV_MD",)),
    ],
)
def test_the_most_specific_option_decides(file: str, line: str, path: str, options: tuple[str, ...]) -> None:
    assert own_option(parse(file), parse(line), path, lambda name: frozenset(FOLDERS.get(name, ()))) == options


def test_a_source_knows_the_objects_it_is_linked_into() -> None:
    files = {
        "Makefile": "obj-y := a/\n",
        "Kbuild": "obj-y := a/\n",
        "a/Makefile": "obj-$(CONFIG_E) += eth.o lone.o\neth-y := main.o\neth-$(CONFIG_P) += phy.o\n",
    }
    conditions, objects = linked_files(files.get, "x86")
    assert objects["a/main"] == objects["a/phy"] == {"eth"}
    assert objects["a/lone"] == {"lone"}
    assert str(conditions["a/phy"]) == "(E=y && P=y) || (E=m && P)"


@given(st.text(alphabet='pr_info("%d\\n, ;){}#ifdef\n', max_size=120))
def test_any_text_is_read_without_an_error(text: str) -> None:
    for one in found(text):
        assert one.template.strip()
