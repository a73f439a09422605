// A graph as a C library: compiled ahead of time, for programs that have nothing of egret.
#pragma once

#include "backend/c/library.h"
#include "backend/common/device.h"
#include "compiler/options.h"

#include <filesystem>

namespace egret::compiler {

/// The graph compiled for `device`, as text. Where the device has a LibraryWriter, its kernels are
/// chosen as for a run with `options`, without products of libraries. For every other device it is
/// compiled for C on a machine with this one's caches: of `options`, the memory limit, rules,
/// deterministic and donated outputs hold; nothing is measured, so that an effort above Quick is
/// Quick. Errors of compile_graph(), of backend::c::render_library() and of the writer.
backend::c::LibraryText c_library(const ir::Graph& graph, const Options& options,
                                  const backend::c::LibraryInterface& interface,
                                  backend::Device& device);

/// The file's name without its ending, as the library's function is called. Error(Value) when the
/// path does not end in .c or .so, or the rest is no name of a C function.
std::string library_name(const std::filesystem::path& path);

/// Writes NAME.c or NAME.so, as `path` says, and NAME.h beside it. NAME.so is compiled by EGRET_CC
/// or cc. Error(File) when a file cannot be written, Error(Device) when there is no compiler: then
/// nothing is written.
void write_c_library(const std::filesystem::path& path, const backend::c::LibraryText& text);

} // namespace egret::compiler
