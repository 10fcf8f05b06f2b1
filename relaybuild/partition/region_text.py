"""C text by which a library knows its regions: one unit for each, and the table of all; knows no backend.

The unit of region S defines `rb_region_S`, with which the host's program calls it. Where S became a blob, the unit also
holds its bytes and exports S as a packed function.
"""

from __future__ import annotations

from collections.abc import Sequence

from relaybuild.dataclass import dataclass
from relaybuild.partition.backend import GeneratedCode, SourceUnit
from relaybuild.partition.c_text import Port, c_bytes, c_string, infos_pointer, tensor_infos


@dataclass(frozen=True)
class RegionPorts:
    """A region's symbol, its backend's tag, and its tensors."""

    symbol: str
    compiler: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]


@dataclass(frozen=True)
class LibraryModule:
    """A module that brings regions: its type key, and their symbols."""

    type_key: str
    symbols: tuple[str, ...]


def region_unit(region: RegionPorts, code: GeneratedCode, framed_blob: bytes | None = None) -> SourceUnit:
    """The unit that defines `rb_region_S`; `framed_blob` are the bytes that stand for `code.blob` in a library."""
    symbol = region.symbol
    lines = [
        f"/* Region {symbol}, computed by '{region.compiler}', as the library knows it. */",
        '#include "relaybuild/packed.h"',
        "",
        *tensor_infos("inputs", region.inputs),
        *tensor_infos("outputs", region.outputs),
        "",
        "static const RbSignature signature = {",
        f"    {c_string(symbol)},",
        f"    {len(region.inputs)},",
        f"    {len(region.outputs)},",
        f"    {infos_pointer('inputs', region.inputs)},",
        f"    {infos_pointer('outputs', region.outputs)},",
        "};",
        "",
        f"RB_EXPORT int32_t __tvm_ffi_{symbol}(void *self, const RbValue *args, int32_t num_args, RbValue *result);",
        f"RB_HIDDEN extern const RbRegion rb_region_{symbol};",
    ]
    create, destroy, blob = "0", "0", "0"
    if code.blob is not None and framed_blob is not None:
        create, destroy, blob = "rb_blob_create", "rb_blob_destroy", "&blob"
        lines += [
            "",
            "RB_HIDDEN int32_t rb_blob_create(const RbRegion *region, void **self);",
            "RB_HIDDEN void rb_blob_destroy(void *self);",
            "RB_HIDDEN int32_t rb_blob_run(const RbRegion *region, void *self, const RbValue *args, int32_t num_args,",
            "                              RbValue *result);",
            "",
            "static const unsigned char bytes[] = {",
            f"    {c_bytes(framed_blob)},",
            "};",
            "",
            f"static const RbBlob blob = {{{c_string(code.blob.type_key)}, bytes, sizeof bytes}};",
            "",
            f"int32_t __tvm_ffi_{symbol}(void *self, const RbValue *args, int32_t num_args, RbValue *result) {{",
            f"  return rb_blob_run(&rb_region_{symbol}, self, args, num_args, result);",
            "}",
        ]
    elif code.stateful:
        create, destroy = f"{symbol}_create", f"{symbol}_destroy"
        lines += [
            f"RB_HIDDEN int32_t {create}(const RbRegion *region, void **self);",
            f"RB_HIDDEN void {destroy}(void *self);",
        ]
    lines += [
        "",
        f"const RbRegion rb_region_{symbol} = {{",
        f"    &signature, {c_string(region.compiler)}, __tvm_ffi_{symbol}, {create}, {destroy}, {blob},",
        "};",
        "",
    ]
    return SourceUnit(f"region_{symbol}", "\n".join(lines), hot=False)


def library_unit(modules: Sequence[LibraryModule], type_key: str, kept: Sequence[str] = ()) -> SourceUnit:
    """The unit that exports the table of a library's regions and of the modules that bring them.

    Module 0, of the `type_key` given, is the library and imports all others. The shared libraries `kept`, by soname,
    stay loaded when it is unloaded: threads of theirs may outlive it.
    """
    symbols = [symbol for module in modules for symbol in module.symbols]
    owners = [str(number + 1) for number, module in enumerate(modules) for _ in module.symbols]
    keys = [c_string(key) for key in (type_key, *(module.type_key for module in modules))]
    pointers = ", ".join(f"&rb_region_{symbol}" for symbol in symbols)
    lines = [
        *(["#define _GNU_SOURCE"] if kept else []),
        "/* The functions of backends in this library, and the modules that bring them. */",
        '#include "relaybuild/packed.h"',
        "",
        *_keeping(kept),
        *(f"RB_HIDDEN extern const RbRegion rb_region_{symbol};" for symbol in symbols),
        "RB_EXPORT const RbLibrary *relaybuild_library_v1(void);",
        "",
        f"static const RbRegion *const regions[] = {{{pointers or '0'}}};",
        f"static const int32_t region_modules[] = {{{', '.join(owners) or '0'}}};",
        f"static const char *const module_keys[] = {{{', '.join(keys)}}};",
        f"static const int32_t parents[] = {{{', '.join(['-1', *('0' for _ in modules)])}}};",
        "",
        "const RbLibrary *relaybuild_library_v1(void) {",
        "  static const RbLibrary library = {",
        "      RELAYBUILD_ABI_VERSION,",
        "      (uint32_t)sizeof(RbLibrary),",
        f"      {len(symbols)},",
        f"      {len(keys)},",
        "      regions,",
        "      region_modules,",
        "      module_keys,",
        "      parents,",
        "  };",
        "  return &library;",
        "}",
        "",
    ]
    return SourceUnit("library", "\n".join(lines), hot=False)


def _keeping(sonames: Sequence[str]) -> list[str]:
    """Code that runs when the library is loaded, by when what it needs is loaded too."""
    if not sonames:
        return []
    return [
        "#include <dlfcn.h>",
        "",
        "__attribute__((constructor)) static void keep_libraries(void) {",
        *(f"  (void)dlopen({c_string(soname)}, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);" for soname in sonames),
        "}",
        "",
    ]
