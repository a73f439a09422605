#include "backend/reference/gpu_turns.h"

#include "support/fail.h"

namespace egret::backend::reference {

void GpuTurns::run(const std::function<void(int, int)>& body) {
  turns_.run([&](int worker) { body(worker / warps_, worker % warps_); });
}

void GpuTurns::meet(Meeting& meeting, int worker, int count, const char* what) {
  const std::int64_t round = meeting.round;
  if (++meeting.come == count) {
    meeting.come = 0;
    ++meeting.round;
    return;
  }
  turns_.wait(
      worker, [&meeting, round] { return meeting.round != round; }, what);
}

void GpuTurns::barrier(int block, int warp, int number, int warps) {
  Block& b = blocks_[static_cast<std::size_t>(block)];
  meet(b.barriers[number], block * warps_ + warp, number == 0 ? warps_ : warps, "a barrier");
}

void GpuTurns::grid_barrier(int block, int warp, int cluster) {
  const int worker = block * warps_ + warp;
  if (cluster > 0)
    return meet(clusters_[block / cluster], worker, warps_ * cluster, "a barrier of a cluster");
  meet(grid_, worker, warps_ * static_cast<int>(blocks_.size()), "a barrier of the grid");
}

std::int64_t& GpuTurns::visit(Block& block, int warp, bool of_last) {
  if (block.visits.empty())
    block.visits.assign(static_cast<std::size_t>(2 * warps_), 0);
  return block.visits[static_cast<std::size_t>(2 * warp + of_last)];
}

std::vector<std::vector<Number>> GpuTurns::exchange(int block, int warp, std::vector<Number> mine) {
  Block& b = blocks_[static_cast<std::size_t>(block)];
  const std::int64_t number = visit(b, warp, false)++;
  Exchange& e = b.exchanges[number];
  e.parts.resize(static_cast<std::size_t>(warps_));
  e.parts[static_cast<std::size_t>(warp)] = std::move(mine);
  ++e.come;
  turns_.wait(
      block * warps_ + warp, [&e, this] { return e.come == warps_; },
      "a combination over the block");
  auto parts = e.parts;
  if (++e.gone == warps_)
    b.exchanges.erase(number);
  return parts;
}

bool GpuTurns::last(int block, int warp, std::int64_t key, std::int64_t arrivals, int number_of,
                    int warps) {
  barrier(block, warp, number_of, number_of == 0 ? warps_ : warps);
  Block& b = blocks_[static_cast<std::size_t>(block)];
  const std::int64_t number = visit(b, warp, true)++;
  auto [it, first] = b.last.try_emplace(number, false);
  if (first) {
    std::int64_t& come = arrived_[key];
    it->second = ++come == arrivals;
    if (it->second)
      come = 0;
  }
  return it->second;
}

void GpuTurns::post(int counter, std::int64_t place, Number value) {
  ensure(posts_.insert({{counter, place}, value}).second,
         "element {} of counter {} is posted twice", place, counter);
}

Number GpuTurns::await(int block, int warp, int counter, std::int64_t place) {
  const auto posted = [this, at = std::pair(counter, place)] { return posts_.contains(at); };
  if (!posted())
    wait(block, warp, posted, "what another block posts");
  return posts_.at({counter, place});
}

void GpuTurns::clear_posts(int block, int warp, int counter, std::int64_t count) {
  barrier(block, warp, 0, warps_);
  if (++cleared_[counter] == warps_ * static_cast<int>(blocks_.size()))
    std::erase_if(
        posts_, [&](const auto& p) { return p.first.first == counter && p.first.second < count; });
}

std::int64_t GpuTurns::draw(int block, int loop, std::size_t n) {
  if (n == 0)
    return block;
  std::vector<std::int64_t>& drawn = blocks_[static_cast<std::size_t>(block)].drawn[loop];
  while (drawn.size() < n)
    drawn.push_back(static_cast<std::int64_t>(blocks_.size()) + next_[loop]++);
  return drawn[n - 1];
}

} // namespace egret::backend::reference
