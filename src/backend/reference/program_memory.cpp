#include "backend/reference/program_memory.h"

#include "support/fail.h"

namespace egret::backend::reference {

using kernel::Buffer;
using kernel::Space;

ProgramMemory::ProgramMemory(const ProgramCode& code, const kernel::ArgBlock& block,
                             const std::int64_t* slots, int workers,
                             const InterpreterOptions& options)
    : program_(code.program), options_(options), pieces_(code.program.buffers.size()) {
  for (std::size_t b = 0; b < pieces_.size(); ++b) {
    const Buffer& buffer = program_.buffers[b];
    const bool given = buffer.space == Space::Argument;
    pieces_[b].resize(buffer.space == Space::Worker ? static_cast<std::size_t>(workers) : 1);
    for (Piece& piece : pieces_[b]) {
      piece.elements = code.buffer_elements[b](slots);
      ensure(piece.elements >= 0, "program {}: buffer {} has {} elements", program_.name,
             buffer.name, piece.elements);
      auto count = static_cast<std::size_t>(piece.elements);
      if (given) {
        piece.data = static_cast<std::byte*>(block.pointers[buffer.argument]);
      } else {
        piece.own.assign(count * size_of(buffer.dtype), std::byte{0xA5});
        piece.data = piece.own.data();
      }
      piece.stamps.assign(count, Stamp{.written = given && buffer.read});
    }
  }
}

ProgramMemory::Piece& ProgramMemory::piece(int buffer, int worker) {
  auto& pieces = pieces_[static_cast<std::size_t>(buffer)];
  return pieces[pieces.size() == 1 ? 0 : static_cast<std::size_t>(worker)];
}

ProgramMemory::Stamp& ProgramMemory::checked(int buffer, std::int64_t index, int worker,
                                             const char* what) {
  ensure(buffer >= 0 && static_cast<std::size_t>(buffer) < pieces_.size(),
         "program {}: no buffer {}", program_.name, buffer);
  Piece& p = piece(buffer, worker);
  ensure(index >= 0 && index < p.elements,
         "program {}: {} of {}[{}] is out of bounds: it has {} elements", program_.name, what,
         program_.buffers[static_cast<std::size_t>(buffer)].name, index, p.elements);
  return p.stamps[static_cast<std::size_t>(index)];
}

void ProgramMemory::race(int buffer, std::int64_t index, const char* what, int first,
                         const char* then, int second) const {
  auto who = [](int worker) {
    return worker == kSeveral ? std::string("several workers") : fmt::format("worker {}", worker);
  };
  throw InternalError(fmt::format("internal error: program {}: race on {}[{}]: {} {} it and {} "
                                  "{} it with no barrier between",
                                  program_.name,
                                  program_.buffers[static_cast<std::size_t>(buffer)].name, index,
                                  who(first), what, who(second), then));
}

Number ProgramMemory::load(int buffer, std::int64_t index, int worker, int phase) {
  Stamp& stamp = checked(buffer, index, worker, "load");
  const Buffer& b = program_.buffers[static_cast<std::size_t>(buffer)];
  const bool own = b.space == Space::Worker || b.space == Space::Workspace;
  ensure(own || b.read || b.written, "program {}: load of {}[{}], which is not declared as read",
         program_.name, b.name, index);
  if (options_.check_uninitialized)
    ensure(stamp.written, "program {}: load of {}[{}], which nothing has written", program_.name,
           b.name, index);
  if (options_.check_races && stamp.write_phase == phase && stamp.writer != worker)
    race(buffer, index, "writes", stamp.writer, "reads", worker);
  if (stamp.read_phase != phase)
    stamp.reader = worker;
  else if (stamp.reader != worker)
    stamp.reader = kSeveral;
  stamp.read_phase = phase;
  return read_number(b.dtype, piece(buffer, worker).data +
                                  static_cast<std::size_t>(index) * size_of(b.dtype));
}

void ProgramMemory::store(int buffer, std::int64_t index, Number value, int worker, int phase) {
  Stamp& stamp = checked(buffer, index, worker, "store");
  const Buffer& b = program_.buffers[static_cast<std::size_t>(buffer)];
  ensure(b.space != Space::Argument || b.written,
         "program {}: store to {}[{}], which is not declared as written", program_.name, b.name,
         index);
  if (options_.check_races && stamp.write_phase == phase && stamp.writer != worker)
    race(buffer, index, "writes", stamp.writer, "writes", worker);
  if (options_.check_races && stamp.read_phase == phase && stamp.reader != worker)
    race(buffer, index, "reads", stamp.reader, "writes", worker);
  stamp.writer = worker;
  stamp.write_phase = phase;
  stamp.written = true;
  write_number(b.dtype, value,
               piece(buffer, worker).data + static_cast<std::size_t>(index) * size_of(b.dtype));
}

} // namespace egret::backend::reference
