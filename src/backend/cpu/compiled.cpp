#include "backend/cpu/compiled.h"

#include "backend/cpu/code_version.h"
#include "kernel/serialize.h"
#include "support/fail.h"

namespace egret::backend::cpu {

Hash128 object_key(const kernel::KernelProgram& program, const Isa& isa) {
  kernel::KernelProgram unnamed = program;
  unnamed.name.clear();
  // Buffers are named after nodes, whose numbers differ from graph to graph.
  for (kernel::Buffer& buffer : unnamed.buffers)
    buffer.name.clear();
  return hash128(
      fmt::format("{}\n{}\n{}\n{}\n", code_version(), isa.cpu, isa.features, isa.vector_bytes) +
      kernel::to_bytes(unnamed));
}

CompiledProgram compile_program(CodeGenerator& generator, const Isa& isa,
                                const kernel::KernelProgram& program, ObjectCache* objects) {
  CompiledProgram compiled;
  const Hash128 key = object_key(program, isa);
  const std::string symbol = "egret." + key.hex();
  if (objects)
    if (const auto object = objects->find(key))
      try {
        compiled.code = generator.link(symbol, *object, &compiled.times);
        compiled.loaded = true;
        return compiled;
      } catch (const Error& error) {
        objects->reject(key, error.what());
      }
  const std::string object = generator.emit(symbol, kernel::to_bytes(program), &compiled.times);
  compiled.code = generator.link(symbol, object, &compiled.times);
  if (objects)
    objects->keep(key, object);
  return compiled;
}

} // namespace egret::backend::cpu
