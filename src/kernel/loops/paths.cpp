#include "kernel/loops/paths.h"

#include "kernel/analysis.h"

#include <algorithm>

namespace egret::kernel::loops {

namespace {

void walk(const Tree& tree, Path& way, std::vector<Path>& paths) {
  way.push_back({&tree, false});
  if (tree.kind == Kind::Body)
    paths[std::size_t(tree.stage)] = way;
  if (tree.first) {
    way.back().first = true;
    walk(*tree.first, way, paths);
    way.back().first = false;
  }
  if (tree.rest)
    walk(*tree.rest, way, paths);
  way.pop_back();
}

} // namespace

std::vector<Path> body_paths(const Region& region, const Tree& tree) {
  std::vector<Path> paths(region.stages.size());
  Path way;
  walk(tree, way, paths);
  return paths;
}

std::size_t parting(const Path& a, const Path& b) {
  std::size_t i = 0;
  while (i + 1 < a.size() && i + 1 < b.size() && a[i].first == b[i].first &&
         a[i + 1].node == b[i + 1].node)
    ++i;
  return i;
}

bool is_single(const Tree& loop) {
  return loop.extent == Expr(1);
}

bool is_vector(const Tree& loop) {
  return loop.bind == Bind::Vector || (loop.bind == Bind::Matrix && loop.rest->kind == Kind::For &&
                                       loop.rest->rest->kind == Kind::Body);
}

bool goes_by_threads(const Tree& tree) {
  return tree.kind == Kind::For && (tree.bind == Bind::Lane || tree.bind == Bind::Warp);
}

bool is_shared_out(Bind bind) {
  return bind != Bind::Serial && bind != Bind::Unroll && bind != Bind::Vector &&
         bind != Bind::Matrix;
}

std::vector<int> computed_with(const Region& region, const std::vector<Path>& paths, int stage) {
  std::vector<int> found{stage};
  for (std::size_t i = 0; i < found.size(); ++i)
    for (const Load& l : region.stages[std::size_t(found[i])].loads)
      if (l.source == Source::Stage && paths[std::size_t(l.number)].empty() &&
          !contains(found, l.number))
        found.push_back(l.number);
  return found;
}

bool is_point(const Region& region, const Tree& tree) {
  switch (tree.kind) {
  case Kind::Body:
    return region.stages[std::size_t(tree.stage)].kind == StageKind::Map;
  case Kind::Mask:
    return is_point(region, *tree.rest);
  case Kind::Then:
    return is_point(region, *tree.first) && is_point(region, *tree.rest);
  default:
    return false;
  }
}

bool overreaches(const Region& region, const Path& path, int axis) {
  const Tree* widest = nullptr;
  for (const Step& s : path)
    if (s.node->kind == Kind::For && s.node->axis == axis && !is_single(*s.node) &&
        (!widest || s.node->step > widest->step))
      widest = s.node;
  return widest &&
         !proves_equal(widest->extent * Expr(widest->step), region.axes[std::size_t(axis)].extent);
}

} // namespace egret::kernel::loops
