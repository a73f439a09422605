// What the generic generators of a CPU and of a GPU share: a loop nest for each stage that is
// stored, its memory, and the work of a point. How points are dealt to workers, how these meet and
// how memory is converted is for the derived classes to say.
#pragma once

#include "kernel/accumulate.h"
#include "kernel/stored_stages.h"

#include <vector>

namespace egret::kernel {

class StageNests {
protected:
  StageNests(const Region& region, const Arithmetic& arithmetic);
  ~StageNests() = default;

  /// The nests of all stages that have one, in order, with a barrier behind each whose results
  /// others read.
  void all();

  /// All workers meet.
  virtual void barrier() = 0;
  /// Deals the points of the stage's free axes to the workers; each is done by ordered().
  virtual void loops(int s) = 0;
  /// Copies all elements of one buffer to another, converted to its dtype.
  virtual void convert(int from, int to, const Expr& elements) = 0;
  /// The work of a point of a map.
  virtual void map(int s, const Point& p);

  /// Result axes along which iterations are independent of each other.
  std::vector<int> free_axes(int s) const;
  /// The axes that must run in order, serially, and the work of a point.
  void ordered(int s, const Point& point);
  /// Those axes, outermost first.
  std::vector<int> ordered_axes(int s) const;
  /// Stores a stage's result at a point wherever it is wanted.
  void deliver(int s, const Point& p, const std::vector<Value>& values);

  const Region& r_;
  ProgramBuilder b_;
  Emitter e_;
  StoredStages stored_;
  bool copying_ = false; ///< now: the outputs that are stored last

private:
  /// A stage's yields on their way.
  struct Reduction {
    std::vector<Accumulator> accumulators;
    std::vector<StateVariables> states;
    void add(const Point& p, const Expr& place);
    std::vector<Value> results();
  };

  void nest(int s);
  /// Declares the workspaces of a stage, row-major over its result axes.
  void make_memory(int s);
  /// Low-precision sums of scatters are made in f32: a workspace takes the place of the output
  /// while it is updated.
  void open_updates(int s);
  void close_updates(int s);
  Reduction start(int s, int lanes);
  std::vector<Value> reduce(int s, const Point& point);
  void scan(int s, const Point& point);

  Arithmetic arithmetic_;
  std::vector<int> updated_; ///< by output: the buffer that a scatter updates
};

} // namespace egret::kernel
