"""Runs a command on an emulated x86-64 machine, under a Linux kernel; knows no model.

Bochs has processors that the machine of the tests has not. It is slow, some 40 million instructions a second, and the
machine that it emulates has one processor, no disk but the one that it starts from, and no network. All files are in
its memory: those of the command in the folder /work, and the dynamic linker with the C library where they always are.
"""

from __future__ import annotations

import functools
import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from relaybuild.build.toolchain import probe

AVX512, AVX2, SSE4 = "corei7_skylake_x", "corei7_haswell_4770", "corei5_lynnfield_750"
"""Processors, as Bochs calls them, of the levels v4, v3 and v2 of x86-64."""

KERNEL_VARIABLE = "RELAYBUILD_TEST_KERNEL"

_HERE = Path(__file__).parent
_BIOS, _VGA_BIOS = Path("/usr/share/bochs/BIOS-bochs-latest"), Path("/usr/share/bochs/VGABIOS-lgpl-latest")
_LIBRARIES = ("ld-linux-x86-64.so.2", "libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0")
_MAGIC = b"\nrelaybuild guest\n"
_MEGABYTE = 1 << 20
_SECTOR = 512
_CYLINDER = 16 * 63 * _SECTOR
_PAGE_TABLES, _PARAMETERS, _COMMAND_LINE, _FILES = 0x10000, 0x20000, 0x21000, 128 * _MEGABYTE
_LOW_MEMORY_END, _BIOS_BEGIN = 0x9FC00, 0xE0000
_ACPI_BYTES = 0x10000
"""What the BIOS takes at the end of memory for its tables."""
_BOOT_TABLE = 0x1B0

_KERNEL_OPTIONS = (
    "console=ttyS0 quiet panic=-1 reboot=t,force "
    # what Bochs says of the size of compacted state, Linux refuses
    "clearcpuid=xsavec,xsaves "
    # what would make a start three times as long
    "nokaslr mitigations=off tsc=reliable no_timer_check acpi=off init_on_alloc=0 cryptomgr.notests "
    "initcall_blacklist=cubictcp_register,trace_eval_init,init_kprobe_trace,init_acpi_pm_clocksource,slab_sysfs_init,"
    "load_system_certificate_list"
)

# Bochs shows its screen to whoever connects: here nobody can.
_ALONE = ("unshare", "--map-root-user", "--net")

_MACHINE = """
config_interface: textconfig
display_library: rfb, options="timeout=0"
cpu: model={cpu}, count=1, ips=10000000, reset_on_triple_fault=0
memory: guest={megabytes}, host={megabytes}
romimage: file={bios}
vgaromimage: file={vga_bios}
ata0: enabled=1, ioaddr1=0x1f0, ioaddr2=0x3f0, irq=14
ata0-master: type=disk, path={folder}/disk, mode=flat, cylinders={cylinders}, heads=16, spt=63
boot: disk
com1: enabled=1, mode=file, dev={folder}/console
port_e9_hack: enabled=1
clock: sync=none, time0=utc
log: {folder}/log
panic: action=fatal
error: action=report
info: action=report
debug: action=ignore
"""


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit code (negative: the signal), and what it wrote to its two outputs."""

    code: int
    out: bytes
    err: str


def run_emulated(
    folder: Path, command: Sequence[str], *, cpu: str, environ: Mapping[str, str] | None = None, timeout: float = 600
) -> Ended:
    """Run a command in a copy of a folder of files; its first word is a path there, or an absolute one.

    Skips the test where Bochs, a kernel or a compiler that links statically is missing. A machine that does not start,
    or that is not done after `timeout` seconds, fails the test with the last that its kernel said.
    """
    if shutil.which("bochs-bin") is None or not _BIOS.exists() or not _VGA_BIOS.exists():
        pytest.skip("Bochs is not installed: Debian's package bochs has it")
    if subprocess.run([*_ALONE, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no network namespace can be made here")
    kernel, init = _kernel(), _init()
    with tempfile.TemporaryDirectory(prefix="relaybuild-emulated-") as name:
        machine = Path(name)
        files = _archive(_guest_files(folder, command, environ or {}, init))
        megabytes = _FILES // _MEGABYTE + 3 * len(files) // _MEGABYTE + 192
        disk = _disk(kernel, files, megabytes * _MEGABYTE)
        (machine / "disk").write_bytes(disk)
        places = {"bios": _BIOS, "vga_bios": _VGA_BIOS, "folder": machine}
        text = _MACHINE.format(cpu=cpu, megabytes=megabytes, cylinders=len(disk) // _CYLINDER, **places)
        (machine / "machine").write_text(text)
        # Debian's Bochs has a debugger, which asks before it begins.
        (machine / "commands").write_text("continue\n")
        return _ended(_emulate(machine, timeout), machine)


def _emulate(machine: Path, timeout: float) -> bytes:
    """All that Bochs writes."""
    command = [*_ALONE, "bochs-bin", "-q", "-f", str(machine / "machine"), "-rc", str(machine / "commands")]
    with (machine / "output").open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            pytest.fail(f"the emulated machine was not done after {timeout:.0f} s:\n{_last_words(machine)}")
        finally:
            process.kill()
            process.wait()
    return (machine / "output").read_bytes()


def _ended(output: bytes, machine: Path) -> Ended:
    _, magic, frames = output.partition(_MAGIC)
    told = {b"o": b"", b"e": b""}
    while magic and len(frames) >= 5:
        kind, size = frames[:1], int.from_bytes(frames[1:5], "little")
        content, frames = frames[5 : 5 + size], frames[5 + size :]
        if kind == b"x":
            return Ended(
                int.from_bytes(content, "little", signed=True), told[b"o"], told[b"e"].decode(errors="replace")
            )
        if kind not in told:
            break
        told[kind] += content
    error = told[b"e"].decode(errors="replace")
    raise AssertionError(f"the emulated machine stopped before the command ended: {error}\n{_last_words(machine)}")


def _last_words(machine: Path) -> str:
    texts = [path.read_text(errors="replace") for path in (machine / "log", machine / "console") if path.exists()]
    return "\n".join("\n".join(text.splitlines()[-15:]) for text in texts)


@functools.cache
def _init() -> bytes:
    """The machine's first program."""
    with tempfile.TemporaryDirectory(prefix="relaybuild-init-") as folder:
        made = Path(folder) / "init"
        command = [*probe(None).command, "-static", "-O1", "-Wall", "-Wextra", "-Werror", "-o", str(made)]
        done = subprocess.run([*command, str(_HERE / "guest_init.c")], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"no program can be linked statically: {done.stderr}")
        return made.read_bytes()


@functools.cache
def _boot_sector() -> bytes:
    with tempfile.TemporaryDirectory(prefix="relaybuild-boot-") as folder:
        made, linked = Path(folder) / "boot.o", Path(folder) / "boot"
        subprocess.run([*probe(None).command, "-c", _HERE / "guest_boot.S", "-o", made], check=True)
        flags = ["-m", "elf_x86_64", "-Ttext", "0x7c00", "--oformat", "binary"]
        subprocess.run(["ld", *flags, made, "-o", linked], check=True)
        return linked.read_bytes()


@dataclass(frozen=True)
class _Kernel:
    """A kernel as it lies in memory from `address` on, where it is entered, and the header of its boot parameters."""

    address: int
    entry: int
    image: bytes
    header: bytes


@functools.cache
def _kernel() -> _Kernel:
    packed = _kernel_file().read_bytes()
    header_end = 0x202 + packed[0x201]
    begin = (packed[0x1F1] + 1) * _SECTOR
    offset, length = struct.unpack_from("<II", packed, 0x248)
    image = _unpacked(packed[begin + offset : begin + offset + length])
    assert image[:5] == b"\x7fELF\x02", "the kernel is no 64-bit ELF file"
    (entry, table), (size, count) = struct.unpack_from("<QQ", image, 0x18), struct.unpack_from("<HH", image, 0x36)
    parts = [struct.unpack_from("<IIQQQQQQ", image, table + size * index) for index in range(count)]
    # of a part: kind, flags, place in the file, virtual and physical address, bytes in the file and in memory
    loaded = [(part[2], part[4], part[5]) for part in parts if part[0] == 1]
    first = min(address for _, address, _ in loaded)
    memory = bytearray(max(address + length for _, address, length in loaded) - first)
    for place, address, length in loaded:
        memory[address - first : address - first + length] = image[place : place + length]
    return _Kernel(first, entry, bytes(memory), packed[0x1F1:header_end])


def _kernel_file() -> Path:
    """The one that a variable names, or one that is installed, or of a package of Debian that is not installed."""
    named = os.environ.get(KERNEL_VARIABLE)
    found = [Path(named)] if named else sorted(Path("/boot").glob("vmlinuz-*-amd64"))
    if not found or not found[-1].exists():
        pytest.skip(f"there is no Linux kernel: set {KERNEL_VARIABLE} to the vmlinuz of a Debian package linux-image-*")
    return found[-1]


def _unpacked(payload: bytes) -> bytes:
    programs = {b"\x02\x21\x4c\x18": "lz4", b"\x28\xb5\x2f\xfd": "zstd", b"\xfd7zX": "xz", b"\x1f\x8b": "gzip"}
    program = next((name for magic, name in programs.items() if payload.startswith(magic)), None)
    if program is None or shutil.which(program) is None:
        pytest.skip(f"the kernel is packed by {program or 'an unknown program'}, which is not installed")
    # behind what is packed stands its size; some programs complain of that when they have written everything
    done = subprocess.run([program, "-dc"], input=payload[:-4], capture_output=True)
    assert done.stdout, done.stderr.decode()
    return done.stdout


def _guest_files(
    folder: Path, command: Sequence[str], environ: Mapping[str, str], init: bytes
) -> Iterator[tuple[str, int, bytes]]:
    """(path, mode, content) of all that the machine has."""
    for name in ("dev", "proc", "tmp", "lib64", "work"):
        yield name, 0o40755, b""
    yield "init", 0o100755, init
    yield "command", 0o100644, _words(command)
    # functions are bound at once: what the linker does on the way to one that is bound late, Bochs takes for a fault
    variables = {"LD_LIBRARY_PATH": "/lib64", "LD_BIND_NOW": "1", **environ}
    yield "environ", 0o100644, _words([f"{name}={value}" for name, value in variables.items()])
    for name in _LIBRARIES:
        yield f"lib64/{name}", 0o100755, _library(name).read_bytes()
    for path in sorted(folder.rglob("*")):
        name = f"work/{path.relative_to(folder).as_posix()}"
        yield (name, 0o40755, b"") if path.is_dir() else (name, 0o100755, path.read_bytes())


def _words(words: Sequence[str]) -> bytes:
    return b"".join(word.encode() + b"\0" for word in words)


def _library(name: str) -> Path:
    """Where the compiler finds a library of the system."""
    done = subprocess.run([*probe(None).command, f"-print-file-name={name}"], capture_output=True, text=True)
    return Path(done.stdout.strip())


def _archive(files: Iterator[tuple[str, int, bytes]]) -> bytes:
    """Files in the format that Linux takes as its first file system (cpio, newc)."""
    made = bytearray()
    for number, (name, mode, content) in enumerate([*files, ("TRAILER!!!", 0, b"")], start=1):
        text = name.encode() + b"\0"
        fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(text), 0)
        made += b"070701" + b"".join(b"%08X" % field for field in fields) + text
        made += b"\0" * (-len(made) % 4) + content
        made += b"\0" * (-len(made) % 4)
    return bytes(made)


def _disk(kernel: _Kernel, files: bytes, memory: int) -> bytes:
    """The boot sector, and behind it what belongs into memory."""
    parts = [
        (_PAGE_TABLES, _page_tables()),
        (_PARAMETERS, _parameters(kernel, len(files), memory)),
        (kernel.address, kernel.image),
        (_FILES, files),
    ]
    boot = bytearray(_boot_sector())
    struct.pack_into("<I", boot, _BOOT_TABLE, kernel.entry)
    content = b""
    for number, (address, data) in enumerate(parts):
        struct.pack_into("<II", boot, _BOOT_TABLE + 4 + 8 * number, address, -(-len(data) // _SECTOR))
        content += data + b"\0" * (-len(data) % _SECTOR)
    return bytes(boot) + content + b"\0" * (-(len(boot) + len(content)) % _CYLINDER)


def _page_tables() -> bytes:
    """The first four gigabytes where they are, in pages of two megabytes."""
    page, present = 4096, 3
    top = struct.pack("<Q", _PAGE_TABLES + page | present).ljust(page, b"\0")
    middle = struct.pack("<4Q", *(_PAGE_TABLES + page * (2 + n) | present for n in range(4))).ljust(page, b"\0")
    return top + middle + struct.pack("<2048Q", *(n << 21 | 0x80 | present for n in range(2048)))


def _parameters(kernel: _Kernel, size: int, memory: int) -> bytes:
    """Linux' boot parameters, and its command line behind them."""
    made = bytearray(_COMMAND_LINE - _PARAMETERS)
    made[0x1F1 : 0x1F1 + len(kernel.header)] = kernel.header
    made[0x210] = 0xFF  # a loader that has no number
    struct.pack_into("<II", made, 0x218, _FILES, size)
    struct.pack_into("<I", made, 0x228, _COMMAND_LINE)
    usable, reserved, acpi = 1, 2, 3
    top = memory - _ACPI_BYTES
    ranges = [
        (0, _LOW_MEMORY_END, usable),
        (_LOW_MEMORY_END, 0xA0000, reserved),
        (_BIOS_BEGIN, _MEGABYTE, reserved),
        (_MEGABYTE, top, usable),
        (top, memory, acpi),
    ]
    made[0x1E8] = len(ranges)
    for number, (begin, end, kind) in enumerate(ranges):
        struct.pack_into("<QQI", made, 0x2D0 + 20 * number, begin, end - begin, kind)
    return bytes(made) + _KERNEL_OPTIONS.encode() + b"\0"
