// Acting on many matches: step by step over blocks of matches rather than match by match, so that
// the hash slots and rows that a step will look at can be asked for ahead of time. Most of the time
// of acting is waiting for memory.
#include "egraph/engine.h"

#include <algorithm>

namespace egret::egraph {
namespace {
/// Matches of one block: its registers and keys fit into the nearest cache.
constexpr std::size_t kBlock = 256;
/// How far ahead rows are asked for.
constexpr std::size_t kRowsAhead = 12;
} // namespace

/// Whether going step by step means the same as going match by match: nothing is read back that
/// another match might write, but for terms, which are the same whoever makes them. Merges see
/// their values in the order of the matches as long as only one step sets something.
bool Actor::runs_in_blocks(const ActionProgram& program) const {
  int sets = 0;
  for (const ActionStep& step : program.steps) {
    switch (step.op) {
    case ActionOp::Primitive:
      if (!engine_.signature.primitive(step.target).pure)
        return false;
      break;
    case ActionOp::Set:
      if (++sets > 1)
        return false;
      break;
    case ActionOp::Construct:
    case ActionOp::Union:
    case ActionOp::UnionInto:
      break;
    default:
      return false;
    }
  }
  return true;
}

/// How many of the matches that are left are acted on before the number of rows is looked at: as
/// the limit comes near, so few that only the last one can exceed it.
std::size_t Actor::block_size(const ActionProgram& program, std::uint64_t left) {
  std::size_t most = static_cast<std::size_t>(std::min<std::uint64_t>(kBlock, left));
  if (engine_.limits.rows == Budget::kNoLimit)
    return most;
  std::uint64_t rows = engine_.live_rows();
  std::uint64_t room = engine_.limits.rows - std::min(rows, engine_.limits.rows);
  std::uint64_t each = std::max<std::size_t>(1, program.steps.size());
  return static_cast<std::size_t>(std::clamp<std::uint64_t>(room / each, 1, most));
}

bool Actor::run_all(const ActionProgram& program, const Value* words, std::size_t width,
                    std::uint64_t count) {
  constexpr std::uint64_t kBetweenLooks = 16 * kBlock;
  prepare(program);
  const bool blocks = runs_in_blocks(program);
  if (blocks) {
    block_.resize(std::max<std::size_t>(1, program.registers) * kBlock);
    for (auto [reg, value] : program.constants)
      std::fill_n(block_.begin() + static_cast<std::ptrdiff_t>(reg * kBlock), kBlock, value);
  }
  for (std::uint64_t done = 0; done < count;) {
    const bool rows_exceeded =
        engine_.limits.rows != Budget::kNoLimit && engine_.live_rows() > engine_.limits.rows;
    if (rows_exceeded || since_look_ >= kBetweenLooks) {
      since_look_ = 0;
      if (engine_.limits.cut(engine_.exceeded()))
        return false;
    }
    std::size_t n = block_size(program, count - done);
    const Value* matches = words + done * width;
    if (blocks) {
      for (std::size_t reg = 0; reg < width; ++reg) {
        for (std::size_t i = 0; i < n; ++i)
          block_[reg * kBlock + i] = matches[i * width + reg];
      }
      run_block(program, n);
    } else {
      for (std::size_t i = 0; i < n; ++i) {
        std::copy(matches + i * width, matches + (i + 1) * width, registers_.begin());
        run(program);
      }
    }
    done += n;
    since_look_ += n;
  }
  return true;
}

void Actor::run_block(const ActionProgram& program, std::size_t count) {
  for (const ActionStep& step : program.steps) {
    if (step.op == ActionOp::Primitive) {
      primitive_block(program, step, count);
    } else if (step.op == ActionOp::Union) {
      const Value* a = block_.data() + program.args[step.first] * kBlock;
      const Value* b = block_.data() + program.args[step.first + 1] * kBlock;
      for (std::size_t i = 0; i < count; ++i)
        engine_.classes.join(a[i], b[i]);
    } else {
      table_block(program, step, count);
    }
  }
}

void Actor::primitive_block(const ActionProgram& program, const ActionStep& step,
                            std::size_t count) {
  const Primitive& primitive = engine_.signature.primitive(step.target);
  PrimContext context{engine_.pools, &engine_, true};
  const std::uint32_t* from = program.args.data() + step.first;
  args_.resize(step.count);
  for (std::size_t i = 0; i < count; ++i) {
    for (std::uint32_t a = 0; a < step.count; ++a)
      args_[a] = block_[from[a] * kBlock + i];
    Value out = 0;
    if (!primitive.body(context, args_.data(), args_.size(), out))
      primitive_failed(primitive, step);
    block_[step.dst * kBlock + i] = out;
  }
}

void Actor::table_block(const ActionProgram& program, const ActionStep& step, std::size_t count) {
  const FunctionId id{step.target};
  const Function& function = engine_.signature.function(id);
  const Table& table = engine_.table(id);
  const std::size_t width = function.inputs.size();
  const std::uint32_t* from = program.args.data() + step.first;
  keys_.resize(kBlock * width + 1);
  hashes_.resize(kBlock);
  for (std::size_t a = 0; a < width; ++a) {
    const Value* column = block_.data() + from[a] * kBlock;
    const Sort& sort = engine_.signature.sort(function.inputs[a]);
    Value* key = keys_.data() + a;
    for (std::size_t i = 0; i < count; ++i, key += width)
      *key = sort.is_eq()      ? engine_.classes.find(column[i])
             : !sort.holds_ids ? column[i]
                               : engine_.canonical(function.inputs[a], column[i]);
  }
  for (std::size_t i = 0; i < count; ++i) {
    hashes_[i] = table.hash_key(keys_.data() + i * width);
    table.prefetch_slot(hashes_[i]);
  }
  const Value* last = step.op == ActionOp::Construct
                          ? nullptr
                          : block_.data() + from[width] * kBlock; // target or value
  for (std::size_t i = 0; i < count; ++i) {
    if (i + kRowsAhead < count)
      engine_.table(id).prefetch_row(hashes_[i + kRowsAhead]);
    const Value* key = keys_.data() + i * width;
    switch (step.op) {
    case ActionOp::Construct:
      block_[step.dst * kBlock + i] = construct(id, key, hashes_[i]);
      break;
    case ActionOp::UnionInto:
      construct_into(id, key, hashes_[i], last[i]);
      break;
    default:
      set(id, key, engine_.canonical(function.output, last[i]), step.span);
    }
  }
}

} // namespace egret::egraph
