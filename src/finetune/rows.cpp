#include "finetune/rows.h"

#include "egret/data.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace egret::finetune {

Rows::Rows(std::span<const Sample> samples, std::int64_t length)
    : samples_(samples.begin(), samples.end()), length_(length) {
  std::vector<std::size_t> order(samples_.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater(),
                           [&](std::size_t i) { return samples_[i].tokens.size(); });
  std::multimap<std::int64_t, std::size_t> rooms; // places left, row
  for (const std::size_t i : order) {
    const std::int64_t places = std::ssize(samples_[i].tokens) - 1;
    const auto fullest = rooms.lower_bound(places);
    std::size_t row = rows_.size();
    std::int64_t room = length_;
    if (fullest == rooms.end()) {
      rows_.emplace_back();
    } else {
      room = fullest->first;
      row = fullest->second;
      rooms.erase(fullest);
    }
    rows_[row].push_back(i);
    rooms.emplace(room - places, row);
    learnt_ += std::ranges::count(samples_[i].learnt, true);
  }
}

Batch Rows::batch(std::span<const std::int64_t> numbers) const {
  const auto count = static_cast<std::size_t>(std::ssize(numbers) * length_);
  std::vector<std::int64_t> tokens(count), targets(count, kNotLearnt), positions(count),
      texts(count, -1);
  for (std::size_t r = 0; r < numbers.size(); ++r) {
    if (numbers[r] < 0)
      continue;
    std::size_t at = r * static_cast<std::size_t>(length_);
    std::int64_t text = 0;
    for (const std::size_t i : rows_[static_cast<std::size_t>(numbers[r])]) {
      const Sample& sample = samples_[i];
      for (std::size_t t = 0; t + 1 < sample.tokens.size(); ++t, ++at) {
        tokens[at] = sample.tokens[t];
        targets[at] = sample.learnt[t + 1] ? sample.tokens[t + 1] : kNotLearnt;
        positions[at] = static_cast<std::int64_t>(t);
        texts[at] = text;
      }
      ++text;
    }
  }
  const Shape shape = {std::ssize(numbers), length_};
  return {tensor(tokens, shape), tensor(targets, shape), tensor(positions, shape),
          tensor(texts, shape)};
}

std::vector<std::int64_t> rows_of_step(std::int64_t step, std::int64_t batch, std::int64_t rows,
                                       std::uint64_t seed) {
  std::vector<std::int64_t> numbers, order;
  std::int64_t of = -1;
  for (std::int64_t at = step * batch; at < (step + 1) * batch; ++at) {
    if (at / rows != of) {
      of = at / rows;
      order = data::permutation(rows, (seed << 32U) + static_cast<std::uint64_t>(of));
    }
    numbers.push_back(order[static_cast<std::size_t>(at % rows)]);
  }
  return numbers;
}

} // namespace egret::finetune
