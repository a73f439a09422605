#include "compiler/c_library.h"

#include "backend/c/c_device.h"
#include "backend/c/compiler.h"
#include "backend/c/library_names.h"
#include "compiler/compile.h"
#include "support/fail.h"
#include "support/output_file.h"
#include "support/printable.h"

#include <algorithm>

namespace egret::compiler {

namespace fs = std::filesystem;

namespace {

/// With the kernels of the device itself.
backend::c::LibraryText own_library(const ir::Graph& graph, Options options,
                                    const backend::c::LibraryInterface& interface,
                                    backend::Device& device, const backend::LibraryWriter& writer) {
  options.chains = true;
  KernelCache cache;
  const Compiled compiled = compile_graph(graph, options, device, cache);
  std::vector<backend::LibraryStep> steps;
  for (const PlannedWork& work : work_of(compiled))
    steps.push_back({work.step, work.program, work.settled});
  return writer.text(compiled.plan, steps, graph, interface);
}

} // namespace

backend::c::LibraryText c_library(const ir::Graph& graph, const Options& options,
                                  const backend::c::LibraryInterface& interface,
                                  backend::Device& device) {
  Options chosen = options;
  chosen.libraries = false;
  chosen.steady.clear(); // values that are derived from parameters would be further inputs
  if (const auto writer = device.library_writer())
    return own_library(graph, std::move(chosen), interface, device, *writer);
  chosen.effort = std::min(options.effort.value_or(Effort::None), Effort::Quick);
  chosen.tuner = nullptr;
  const auto text_of_c = backend::c::make_c_source_device();
  KernelCache cache;
  const Compiled compiled = compile_graph(graph, chosen, *text_of_c, cache);
  return backend::c::render_library(compiled.plan, graph, interface);
}

std::string library_name(const fs::path& path) {
  const std::string ending = path.extension().string();
  std::string name = path.stem().string();
  if (ending != ".c" && ending != ".so")
    fail(ErrorKind::Value, "library: {} ends in neither .c nor .so", printable(path.string()));
  if (!backend::c::is_function_name(name))
    fail(ErrorKind::Value,
         "library: {}: {} is no name of a C function: letters, digits and underscores, from a "
         "letter on, no keyword and no function of C's library",
         printable(path.string()), printable(name));
  return name;
}

void write_c_library(const fs::path& path, const backend::c::LibraryText& text) {
  const std::string name = library_name(path);
  fs::path header = path;
  header.replace_extension(".h");
  output_target("library", path);
  output_target("library", header);
  const std::string main =
      path.extension() == ".so"
          ? backend::c::Compiler::find().compile(text.header + text.source, name)
          : fmt::format("#include \"{}.h\"\n\n{}", name, text.source);
  OutputFile code("library", path), declarations("library", header);
  code.write(main);
  declarations.write(text.header);
  declarations.commit();
  code.commit();
}

} // namespace egret::compiler
