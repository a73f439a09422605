#include "backend/reference/gpu_matrix.h"

#include "support/fail.h"

#include <cstring>
#include <utility>

namespace egret::backend::reference {

using kernel::Intrinsic;

// --- Signals

Signals::Signal& Signals::at(int block, int buffer, std::int64_t place) {
  auto it = signals_.find({block, buffer, place});
  ensure(it != signals_.end(), "program {}: signal {}[{}] was not set up", program_.name,
         program_.buffers[static_cast<std::size_t>(buffer)].name, place);
  return it->second;
}

void Signals::init(int block, int buffer, std::int64_t place, int arrivals) {
  signals_[{block, buffer, place}] = {arrivals, arrivals, 0, 0};
}

void Signals::settle(Signal& s) {
  if (s.pending > 0 || s.bytes != 0)
    return;
  s.pending = s.arrivals;
  ++s.phase;
}

void Signals::arrive(int block, int buffer, std::int64_t place, std::int64_t bytes) {
  Signal& s = at(block, buffer, place);
  ensure(s.pending > 0, "program {}: more arrivals at {}[{}] than in a phase", program_.name,
         program_.buffers[static_cast<std::size_t>(buffer)].name, place);
  s.bytes += bytes;
  --s.pending;
  settle(s);
}

void Signals::bring(int block, int buffer, std::int64_t place, std::int64_t bytes) {
  Signal& s = at(block, buffer, place);
  s.bytes -= bytes;
  settle(s);
}

void Signals::arrive_later(int block, int buffer, std::int64_t place, std::function<void()> land) {
  Signal& s = at(block, buffer, place);
  s.late.push_back(std::move(land));
  s.copies = true;
}

bool Signals::has_copies(int block, int buffer, std::int64_t place) const {
  const auto it = signals_.find({block, buffer, place});
  return it != signals_.end() && it->second.copies;
}

bool Signals::ended(int block, int buffer, std::int64_t place, int parity) {
  Signal& s = at(block, buffer, place);
  for (const auto& land : std::exchange(s.late, {})) {
    land();
    arrive(block, buffer, place, 0);
  }
  return s.phase % 2 != parity;
}

void Signals::finish() const {
  for (const auto& [where, s] : signals_)
    ensure(s.late.empty() && s.bytes == 0 && s.pending == s.arrivals,
           "program {}: signal {}[{}] has {} of {} arrivals and {} bytes to come at the end",
           program_.name, program_.buffers[static_cast<std::size_t>(where[1])].name, where[2],
           s.pending, s.arrivals, s.bytes);
}

// --- Copies

void WarpMatrices::copy(int thread, int to_buffer, int from_buffer, int elements, std::int64_t to,
                        std::int64_t from, bool held, const Actor& actor) {
  Copy c{to_buffer, to, {}};
  // From now on the place holds anything: nobody may still need what was there.
  const DType type = program_.buffers[static_cast<std::size_t>(to_buffer)].dtype;
  const Number unknown = is_float(type) ? Number{.f = 1e30} : Number{.i = 0x5A5A5A5A};
  for (int l = 0; l < elements; ++l) {
    c.values.push_back(held ? memory_.load(from_buffer, from + l, actor) : Number{});
    memory_.store(to_buffer, to + l, unknown, actor);
  }
  open_copies_[static_cast<std::size_t>(thread)].push_back(std::move(c));
}

void WarpMatrices::commit_copies(int thread) {
  const auto t = static_cast<std::size_t>(thread);
  copies_[t].push_back(std::move(open_copies_[t]));
  open_copies_[t].clear();
}

std::function<void()> WarpMatrices::open_copies(int thread, const Actor& actor) {
  auto& open = open_copies_[static_cast<std::size_t>(thread)];
  return [&memory = memory_, copies = std::exchange(open, {}), actor] {
    for (const Copy& c : copies)
      for (std::size_t l = 0; l < c.values.size(); ++l)
        memory.store(c.buffer, c.to + static_cast<std::int64_t>(l), c.values[l], actor);
  };
}

void WarpMatrices::wait_copies(int thread, int groups, const Actor& actor) {
  auto& queue = copies_[static_cast<std::size_t>(thread)];
  while (queue.size() > static_cast<std::size_t>(groups)) {
    for (const Copy& c : queue.front())
      for (std::size_t l = 0; l < c.values.size(); ++l)
        memory_.store(c.buffer, c.to + static_cast<std::int64_t>(l), c.values[l], actor);
    queue.pop_front();
  }
}

std::int64_t WarpMatrices::copy_box(const kernel::TensorMap& map, std::int64_t offset,
                                    std::span<const std::int64_t> extents,
                                    std::span<const std::int64_t> strides,
                                    std::span<const std::int64_t> at, int buffer, std::int64_t to,
                                    const Actor& actor) {
  std::int64_t elements = 1;
  for (int side : map.box)
    elements *= side;
  for (std::int64_t e = 0; e < elements; ++e) {
    std::int64_t rest = e, place = offset;
    bool inside = true;
    for (std::size_t d = 0; d < map.box.size(); ++d) {
      const std::int64_t c = at[d] + rest % map.box[d];
      rest /= map.box[d];
      inside = inside && c >= 0 && c < extents[d];
      place += c * strides[d];
    }
    memory_.store(buffer, to + e, inside ? memory_.load(map.buffer, place, actor) : Number{},
                  actor);
  }
  const auto size = size_of(program_.buffers[static_cast<std::size_t>(map.buffer)].dtype);
  return elements * static_cast<std::int64_t>(size);
}

// --- Matrices of a warp

namespace {

std::uint32_t bits_of(DType type, Number value) {
  std::uint16_t bits = 0;
  write_number(type, value, &bits);
  return bits;
}

double element_of(DType type, std::int64_t word, int half) {
  const auto bits = static_cast<std::uint16_t>(static_cast<std::uint64_t>(word) >> (16 * half));
  return read_number(type, &bits).f;
}

} // namespace

std::vector<std::array<Number, 4>>
WarpMatrices::load(const Intrinsic& use, const std::array<std::int64_t, kThreads>& rows,
                   const Actors& actors) {
  const int buffer = use.memory[0].buffer;
  const DType type = program_.buffers[static_cast<std::size_t>(buffer)].dtype;
  const bool transposed = use.number("transposed") != 0;
  const std::int64_t matrices = use.number("matrices");
  std::vector<std::array<Number, 4>> words(kThreads);
  for (int m = 0; m < matrices; ++m)
    for (int t = 0; t < kThreads; ++t) {
      std::uint32_t word = 0;
      for (int half = 0; half < 2; ++half) {
        int row = t / 4, column = 2 * (t % 4) + half;
        if (transposed)
          std::swap(row, column);
        const auto from = static_cast<std::size_t>(8 * m + row);
        const Number v =
            memory_.load(buffer, rows[from] + column, actors[static_cast<std::size_t>(t)]);
        word |= bits_of(type, v) << (16 * half);
      }
      words[static_cast<std::size_t>(t)][static_cast<std::size_t>(m)] = {.i = word};
    }
  return words;
}

WarpMatrices::Left WarpMatrices::left_of(DType element,
                                         const std::vector<std::array<Number, 4>>& words) {
  Left left{};
  for (std::size_t t = 0; t < kThreads; ++t)
    for (std::size_t half = 0; half < 2; ++half)
      for (std::size_t w = 0; w < 4; ++w)
        left[t / 4 + 8 * (w % 2)][2 * (t % 4) + half + 8 * (w / 2)] =
            element_of(element, words[t][w].i, static_cast<int>(half));
  return left;
}

std::vector<std::array<Number, 4>>
WarpMatrices::multiply(DType element, const std::vector<std::array<Number, 4>>& a,
                       const std::vector<std::array<Number, 4>>& b,
                       const std::vector<std::array<Number, 4>>& c) {
  const Left left = left_of(element, a);
  double right[8][16];
  for (int t = 0; t < kThreads; ++t)
    for (int half = 0; half < 2; ++half) {
      const auto thread = static_cast<std::size_t>(t);
      const int line = t / 4, k = 2 * (t % 4) + half;
      for (int w = 0; w < 2; ++w)
        right[line][k + 8 * w] =
            element_of(element, b[thread][static_cast<std::size_t>(w)].i, half);
    }
  std::vector<std::array<Number, 4>> sums(kThreads);
  for (int t = 0; t < kThreads; ++t)
    for (int i = 0; i < 4; ++i) {
      const int row = t / 4 + 8 * (i / 2), column = 2 * (t % 4) + i % 2;
      const auto thread = static_cast<std::size_t>(t), place = static_cast<std::size_t>(i);
      double sum = c[thread][place].f;
      for (int k = 0; k < 16; ++k)
        sum += left[static_cast<std::size_t>(row)][static_cast<std::size_t>(k)] * right[column][k];
      sums[thread][place] = round_to(DType::F32, {.f = sum});
    }
  return sums;
}

void WarpMatrices::commit_products() {
  products_.push_back(std::move(open_products_));
  open_products_.clear();
}

void WarpMatrices::wait_products(int groups, const Actor& actor, const Variable& variable) {
  while (products_.size() > static_cast<std::size_t>(groups)) {
    for (const Product& p : products_.front())
      run(p, actor, variable);
    products_.pop_front();
  }
}

void WarpMatrices::run(const Product& p, const Actor& actor, const Variable& variable) {
  const auto columns = 8 * p.variables.size();
  Left left{};
  if (!p.words.empty())
    left = left_of(p.element, p.words);
  std::vector<std::array<double, 16>> right(columns);
  for (int k = 0; k < 16; ++k) {
    for (int r = 0; p.words.empty() && r < 16; ++r)
      left[static_cast<std::size_t>(r)][static_cast<std::size_t>(k)] =
          memory_.load(p.left.buffer, p.left.at(p.first_row + r, k), actor).f;
    for (std::size_t n = 0; n < columns; ++n)
      right[n][static_cast<std::size_t>(k)] =
          memory_.load(p.right.buffer, p.right.at(static_cast<int>(n), k), actor).f;
  }
  for (std::size_t v = 0; v < p.variables.size(); ++v)
    for (int t = 0; t < kThreads; ++t)
      for (int i = 0; i < 4; ++i) {
        const auto row = static_cast<std::size_t>(t / 4 + 8 * (i / 2));
        const auto column = 8 * v + static_cast<std::size_t>(2 * (t % 4) + i % 2);
        Number& sum = variable(p.variables[v], t)[i];
        double next = p.add ? sum.f : 0.0;
        for (std::size_t k = 0; k < 16; ++k)
          next += left[row][k] * right[column][k];
        sum = round_to(DType::F32, {.f = next});
      }
}

} // namespace egret::backend::reference
