#include "backend/reference/program_memory.h"

#include "support/fail.h"

#include <algorithm>

namespace egret::backend::reference {

using kernel::Buffer;
using kernel::Space;

ProgramMemory::ProgramMemory(const ProgramCode& code, const kernel::ArgBlock& block,
                             const std::int64_t* slots, int owners,
                             const InterpreterOptions& options)
    : program_(code.program), options_(options), pieces_(code.program.buffers.size()) {
  for (std::size_t b = 0; b < pieces_.size(); ++b) {
    const Buffer& buffer = program_.buffers[b];
    const bool given = buffer.space == Space::Argument;
    const bool own = buffer.space == Space::Worker || buffer.space == Space::Shared;
    pieces_[b].resize(own ? static_cast<std::size_t>(owners) : 1);
    for (Piece& piece : pieces_[b]) {
      piece.elements = code.buffer_elements[b](slots);
      ensure(piece.elements >= 0, "program {}: buffer {} has {} elements", program_.name,
             buffer.name, piece.elements);
      auto count = static_cast<std::size_t>(piece.elements);
      if (given) {
        piece.data = static_cast<std::byte*>(block.pointers[buffer.argument]);
      } else {
        const bool zero = buffer.space == Space::Counter;
        piece.own.assign(count * size_of(buffer.dtype), zero ? std::byte{0} : std::byte{0xA5});
        piece.data = piece.own.data();
      }
      piece.stamps.assign(
          count, Stamp{.write = {}, .read = {}, .update = {}, .written = given && buffer.read});
    }
  }
}

int ProgramMemory::memory_of(int buffer, const Actor& actor) const {
  ensure(buffer >= 0 && static_cast<std::size_t>(buffer) < pieces_.size(),
         "program {}: no buffer {}", program_.name, buffer);
  if (program_.buffers[static_cast<std::size_t>(buffer)].space != Space::Problem)
    return buffer;
  ensure(actor.group != nullptr, "program {}: buffer {} outside of a problem", program_.name,
         program_.buffers[static_cast<std::size_t>(buffer)].name);
  const auto& own = actor.group->buffers;
  const auto at = std::find(own.begin(), own.end(), buffer) - own.begin();
  return actor.group->arguments.at(static_cast<std::size_t>(at)).at(actor.problem);
}

ProgramMemory::Piece& ProgramMemory::piece(int buffer, const Actor& actor) {
  auto& pieces = pieces_[static_cast<std::size_t>(buffer)];
  if (pieces.size() == 1)
    return pieces[0];
  const bool shared = program_.buffers[static_cast<std::size_t>(buffer)].space == Space::Shared;
  return pieces[static_cast<std::size_t>(shared ? actor.block : actor.thread)];
}

ProgramMemory::Stamp& ProgramMemory::checked(int buffer, std::int64_t index, const Actor& actor,
                                             const char* what) {
  Piece& p = piece(buffer, actor);
  ensure(index >= 0 && index < p.elements,
         "program {}: {} of {}[{}] is out of bounds: it has {} elements", program_.name, what,
         program_.buffers[static_cast<std::size_t>(buffer)].name, index, p.elements);
  return p.stamps[static_cast<std::size_t>(index)];
}

bool ProgramMemory::Touch::races_with(const Actor& actor) const {
  if (thread == -1 || thread == actor.thread || grid_phase != actor.grid_phase)
    return false;
  if (block == actor.block)
    return phase == actor.phase;
  return !actor.acquired && (cluster != actor.cluster || cluster_phase == actor.cluster_phase);
}

void ProgramMemory::Touch::join(const Actor& actor) {
  const bool others = races_with(actor);
  const bool blocks = others && block != actor.block, clusters = others && cluster != actor.cluster;
  *this = {others ? kSeveral : actor.thread,
           blocks ? kSeveral : actor.block,
           actor.phase,
           actor.grid_phase,
           clusters ? kSeveral : actor.cluster,
           actor.cluster_phase};
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

Number ProgramMemory::load(int buffer, std::int64_t index, const Actor& actor) {
  buffer = memory_of(buffer, actor);
  Stamp& stamp = checked(buffer, index, actor, "load");
  const Buffer& b = program_.buffers[static_cast<std::size_t>(buffer)];
  ensure(b.space != Space::Argument || b.read || b.written,
         "program {}: load of {}[{}], which is not declared as read", program_.name, b.name, index);
  if (options_.check_uninitialized)
    ensure(stamp.written, "program {}: load of {}[{}], which nothing has written", program_.name,
           b.name, index);
  if (options_.check_races && stamp.write.races_with(actor))
    race(buffer, index, "writes", stamp.write.thread, "reads", actor.thread);
  if (options_.check_races && stamp.update.races_with(actor))
    race(buffer, index, "updates", stamp.update.thread, "reads", actor.thread);
  stamp.read.join(actor);
  return read_number(b.dtype, piece(buffer, actor).data +
                                  static_cast<std::size_t>(index) * size_of(b.dtype));
}

void ProgramMemory::store(int buffer, std::int64_t index, Number value, const Actor& actor) {
  buffer = memory_of(buffer, actor);
  Stamp& stamp = checked(buffer, index, actor, "store");
  const Buffer& b = program_.buffers[static_cast<std::size_t>(buffer)];
  ensure(b.space != Space::Argument || b.written,
         "program {}: store to {}[{}], which is not declared as written", program_.name, b.name,
         index);
  if (options_.check_races && stamp.write.races_with(actor))
    race(buffer, index, "writes", stamp.write.thread, "writes", actor.thread);
  if (options_.check_races && stamp.read.races_with(actor))
    race(buffer, index, "reads", stamp.read.thread, "writes", actor.thread);
  if (options_.check_races && stamp.update.races_with(actor))
    race(buffer, index, "updates", stamp.update.thread, "writes", actor.thread);
  stamp.write = {actor.thread,     actor.block,   actor.phase,
                 actor.grid_phase, actor.cluster, actor.cluster_phase};
  stamp.written = true;
  write_number(b.dtype, value,
               piece(buffer, actor).data + static_cast<std::size_t>(index) * size_of(b.dtype));
}

Number ProgramMemory::combine(int buffer, std::int64_t index, Monoid monoid, Number value,
                              const Actor& actor) {
  buffer = memory_of(buffer, actor);
  Stamp& stamp = checked(buffer, index, actor, "update");
  const Buffer& b = program_.buffers[static_cast<std::size_t>(buffer)];
  if (options_.check_uninitialized)
    ensure(stamp.written, "program {}: update of {}[{}], which nothing has written", program_.name,
           b.name, index);
  for (const Touch* touch : {&stamp.write, &stamp.read})
    if (options_.check_races && touch->races_with(actor))
      race(buffer, index, touch == &stamp.read ? "reads" : "writes", touch->thread, "updates",
           actor.thread);
  stamp.update.join(actor);
  std::byte* at = piece(buffer, actor).data + static_cast<std::size_t>(index) * size_of(b.dtype);
  const Number before = read_number(b.dtype, at);
  write_number(b.dtype, reference::combine(monoid, b.dtype, before, value), at);
  return before;
}

} // namespace egret::backend::reference
