// Writes a CPU's program from a loop tree.
#pragma once

#include "kernel/accumulate.h"
#include "kernel/loops/boxes.h"
#include "kernel/loops/online.h"
#include "kernel/loops/windows.h"
#include "kernel/target.h"

#include <functional>
#include <set>

namespace egret::kernel::loops {

/// Goes down the tree and writes its loops. Outside of core loops all workers come by: what holds
/// no core loop there is done by one of them, and between the sides of a Then they wait for each
/// other where one reads what the other made. Throws Cannot.
class Writer {
public:
  /// `tree` is settled; of the schedule, the cache policies and what concerns a launch count. Keeps
  /// references to all.
  Writer(const Region& region, const Tree& tree, const Schedule& schedule, const Target& target);
  virtual ~Writer() = default;
  KernelProgram run();

protected:
  using Code = std::function<void(const Here&)>;
  using Dealt = std::function<void(std::span<const Expr>, const Here&)>;

  /// A copy of what a body reads of an operand.
  struct NearCopy {
    int operand = 0, body = -1, stage = 0, value = 0; ///< the load: a value of the stage's body
    int buffer = -1;
    std::vector<int> axes;          ///< on which the element depends
    std::vector<const Tree*> loops; ///< along them, in the order of the copy's elements
    std::vector<Expr> strides;      ///< by loop: elements from one iteration's to the next
    Expr elements;
    Expr base = Expr(0); ///< where it begins in the buffer, which may hold several
    /// The last two loops are rows or columns of a matrix unit's product and its depth: they lie in
    /// u32 as its tiles do.
    enum class Unit : std::uint8_t { None, Left, Right } unit = Unit::None;
    /// In registers: by iteration of `row`, a vector along `lane`.
    std::vector<ValueId> rows;
    const Tree *row = nullptr, *lane = nullptr;
    Expr offset(const std::map<const Tree*, Expr>& digits) const;
    /// Of a tile, in words.
    Expr tile(const std::map<const Tree*, Expr>& digits) const;
  };

  /// Rows of an operand or of an output that lie across the lanes of a vector loop, in scratch
  /// memory so that the lanes are adjacent: between it and the tensor, blocks of as many rows as
  /// columns are transposed in registers.
  struct LaneRows {
    int number = 0;           ///< operand or output
    int stage = 0, value = 0; ///< of an operand: a load; of an output: its stage and component
    std::vector<int> bodies;  ///< that read or make it
    const Tree* vector = nullptr;
    int along = -1;         ///< the axis of the rows, contiguous in the tensor
    Box box;                ///< of a row
    std::int64_t width = 1; ///< of a block, a power of two
    int buffer = -1;        ///< in the compute dtype

    int lanes() const { return int(vector->extent.value()); }
    Expr offset(const Point& p) const {
      return box.offset(p) * Expr(lanes()) + lane_variable(lanes());
    }
  };

  /// Windows of an operand, in memory.
  struct WindowCopy {
    int operand = 0, stage = 0;
    const Load* load = nullptr; ///< of the stage: one of those that read them, which are alike
    std::vector<int> bodies;    ///< that have such loads
    StagedWindow window;
    int lanes = 1, buffer = -1;
  };

  /// Where a stage's results wait for their readers.
  struct Result {
    enum class Kind : std::uint8_t { None, Registers, Memory } kind = Kind::None;
    Box box;
    std::map<std::vector<std::int64_t>, std::vector<VarId>> registers; ///< by key: a component
    std::vector<int> buffers;
  };

  /// What multiplies values of 16 bits: the body values that go along rows and columns.
  struct Factors {
    int left = 0, right = 0;
    DType dtype = DType::BF16;
  };

  /// Values of an output that are to be stored.
  struct Pending {
    int output = 0;
    Point point;
    Value value;
  };

  /// Digits of an index that go with code: of vectors and threads.
  struct Digit {
    int axis = 0;
    std::int64_t step = 1;
    Bind bind = Bind::Vector;
    Expr extent;
    int threads_inside = 1;
    friend bool operator==(const Digit&, const Digit&) = default;
  };

  /// Sums on their way, of the points of a box.
  struct Sums {
    int stage = 0;
    const Tree* node = nullptr;
    int lanes = 1;
    bool fold = false;      ///< the lanes are partial sums
    bool checks = false;    ///< lanes outside of a point's mask must change nothing
    bool spread = false;    ///< the lanes are no points of the box
    bool in_memory = false; ///< else in registers, by key of the box
    std::map<std::vector<std::int64_t>, int>
        tiles; ///< of a matrix unit, by key; they go to memory when they are complete
    bool shared = false;
    Box box;
    std::vector<Accumulator> accumulators; ///< by yield
    std::int64_t copies = 1;               ///< of the registers of a point, taken in rotation
    std::int64_t copy = 0;                 ///< that is read and written now
    std::vector<std::vector<int>> buffers; ///< by yield
    const Expr* part = nullptr; ///< of a reduction that is shared out: the one that is made
    bool recalled = false;      ///< their parts are read from memory
  };

  // The machine: this one is a CPU.
  /// Points of a box, each to one worker.
  virtual void deal(std::span<const Expr> extents, const Here& h, const Dealt& code);
  /// The same for pieces of work that are small.
  virtual void deal_points(std::span<const Expr> extents, const Here& h, const Dealt& code) {
    deal(extents, h, code);
  }
  /// All workers wait for each other.
  virtual void meet() { b_.barrier(); }
  /// Loops that are not for all machines.
  virtual void other_loop(const Tree& t, const Here& h);
  /// Memory of this worker, or of all where they share.
  virtual int memory(const std::string& name, DType dtype, const Expr& elements, const Here& h);
  /// The point, for stores.
  virtual Point storing(const Here& h) const { return h.point; }
  virtual void then(const Tree& t, const Here& h);
  virtual bool is_known(const Tree& loop) const {
    return loop.bind == Bind::Unroll || loop.bind == Bind::Vector || loop.bind == Bind::Matrix;
  }
  virtual void copy_all(int from, int to, const Expr& elements);
  virtual void fill(const NearCopy& copy, const Here& h);
  /// The order of a copy's loops and their strides.
  virtual void arrange(NearCopy& copy) const;
  /// Iterations of a loop that are known when code is written, each with code of its own.
  virtual void each_digit(const Sums& s, const Tree& loop, const Here& h, const Code& code);
  /// Before a body's values are made.
  virtual void check_body(int, const Here&) {}
  /// What lanes and threads have summed, together.
  virtual void together(Sums& s, const Here& h, std::vector<State>& states);
  /// Behind the last term: the sums that exist go to where they are wanted.
  virtual void close_sums(Sums& s, const Here& h);
  /// Whether terms beyond an axis's end are masked inside, not jumped over.
  virtual bool masks_ends(const Tree&) { return false; }
  /// Whether who reads a result has it, where makers keep it in registers.
  virtual bool reaches(int, int) const { return true; }
  /// Whether each of the stage's results is stored by who has read what is overwritten by it.
  virtual bool stores_alone(int) const { return true; }
  virtual void check_sums(const Sums&) {}
  virtual int threads_inside(const Tree&) const { return 1; }
  /// Three matrix loops and the body inside.
  virtual void matrix_product(const Tree& t, const Here& h);
  /// Lanes of a loop whose iterations are lanes.
  virtual int lanes_of_loop(const Tree& loop) const { return int(loop.extent.value()); }
  /// The digits of results that a known loop makes; iterations with registers of their own go into
  /// `copies`.
  virtual void digits_made(const Tree& loop, std::vector<Digit>& digits,
                           std::int64_t& copies) const;
  virtual void collapse(const Tree& t, const Here& h);
  virtual KernelProgram end(const Expr& work);

  // What the tree says.
  const Path& path(int stage) const { return paths_[std::size_t(stage)]; }
  const std::vector<int>& bodies(const Tree& t);
  bool has_core(const Tree& t);
  /// Whether a map's value is computed where it is read: because it has no body, or because it is
  /// an output that others' workers have stored and that is not worth a workspace of its own (see
  /// stored_stages()), or whose elements a GPU's block stores in a loop and reads in a later one.
  bool is_made_again(int maker, int reader) const;
  /// Whether loops along the axis reach beyond its end around some body inside.
  bool overreaches_inside(const Tree& t, int axis);
  std::vector<const Tree*> loops_inside(const Tree& t, int axis) const;
  /// Whether all loops of the axis inside are unrolled or vectors, of which there are some; how
  /// many points they span at the most.
  bool is_tile(const Tree& t, int axis, std::int64_t& span);
  std::vector<int> state_axes(int stage) const;
  /// The vector loop around a stage's body; null when there is none.
  const Tree* vector_of(int stage) const;
  bool reads_stage(int body, int source) const;
  void find_results();
  void find_waiting();
  void check_vectors();

  // Nodes.
  void emit(const Tree& t, const Here& h);
  /// The code of `code`, and behind it what its bodies store to outputs, in one row: so nothing is
  /// stored between their loads, which the machine may then have in flight together, and an output
  /// may take the place of an operand that another body reads at the same point.
  void store_together(const std::function<void()>& code);
  /// Whether the stores inside wait for the last body inside: of maps, those of one point always,
  /// those of several if they are few.
  bool stores_may_wait(const Tree& t);
  /// As the builder's, with stores inside if some wait.
  void when(std::vector<Guard> condition, const std::function<void()>& code);
  void alone(const Here& h, const Code& code);
  virtual void serial_loop(const Tree& t, const Here& h);
  void unrolled_loop(const Tree& t, const Here& h);
  void vector_loop(const Tree& t, const Here& h);
  virtual void core_loops(const Tree& t, const Here& h);
  void whole_or_cut(const std::vector<const Tree*>& loops, std::size_t i, const Tree& rest,
                    const Here& h);
  bool clips(const Tree& t, const Here& h);
  /// The points inside are masked at the end of an axis, whose last loop has been entered.
  void mask_end(Here& h, int axis, const Tree& rest);
  // Tiles of a matrix unit (writer_tiles.cpp).
  /// Rows, columns and depth of a tile's product around the stage's body, where code is written for
  /// them so; else null.
  const Tree* tiles_around(int stage) const;
  void hold_in_tiles(Sums& s, const Here& h);
  /// From tiles to memory; they are free again.
  void leave_tiles(Sums& s);
  void tile_product(const Tree& rows, const Here& h);
  /// Where a factor's tile is: one that was loaded a moment ago, or a free one that is loaded now.
  int factor_tile(int stage, int value, const Tree& rows, bool right, const Here& h);
  int scratch_tile(int stage, int value, const Tree& rows, bool right, const Here& h);
  int free_tile();
  NearCopy::Unit unit_of(const NearCopy& copy) const;
  void fill_tile(const NearCopy& copy, const Here& h);
  /// Throws Cannot where the body is no product of bf16 (or f16, where `halves`) summed in f32.
  Factors matrix_factors(const Tree& rows, bool halves) const;
  bool may_leave(int stage, int axis, const Here& h) const;
  ValueId pair_of(int stage, int value, const Tree& depth, const Expr& pair, const Here& h);
  bool depend(const Tree& first, const Tree& rest);
  bool overwrites(const Tree& first, const Tree& rest);
  void emit_body(const Tree& t, const Here& h);
  void near_copy(const Tree& t, const Here& h);
  void prefetched(const Tree& t, const Here& h);
  /// Prefetches for a body's point: of operands that lie along its vector loop, a line a vector.
  void ask_ahead(int body, Point p);
  NearCopy find_near(const Tree& t);
  /// The copy at a node, arranged, without memory; its body is -1 where nothing reads it.
  NearCopy plan_near(const Tree& t, const Here& h);
  /// That there are points at all, so that there is something to be copied.
  std::vector<Guard> any_points(int stage) const;
  int copy_lanes(const NearCopy& copy) const;
  void fill_near(const NearCopy& copy, std::size_t i, const Here& h);
  /// A block of as many rows as lanes whose rows lie across: it is read along memory and transposed
  /// in registers. False where the copy is none.
  bool transpose_near(NearCopy& copy, const Here& h);
  // Windows (writer_windows.cpp).
  /// The windows that bodies inside of a Near read, without memory; nothing where they do not
  /// overlap and one body reads them, or where loops have been entered along some of an axis.
  std::optional<WindowCopy> windows_of(const Tree& near, const Here& h);
  void near_windows(WindowCopy copy, const Tree& near, const Here& h);
  void provide_windows(int body, const Point& p);
  // Rows across lanes (writer_rows.cpp).
  /// What the bodies inside read of a Near's operand, where it lies so; nothing where it does not.
  std::optional<LaneRows> rows_of_operand(const Tree& near, const Here& h);
  /// The outputs that bodies inside of a vector loop store so.
  std::vector<LaneRows> rows_of_outputs(const Tree& vector, const Here& h);
  /// Sets the side of blocks and makes the memory; false where rows have no known length.
  bool hold_rows(LaneRows& rows, const std::string& name, DType dtype, const Here& h);
  void fill_rows(const LaneRows& rows, const Here& h);
  void store_rows(const LaneRows& rows, const Here& h);
  /// Blocks of the rows, by where they begin.
  void each_block(const LaneRows& rows, const Here& h, const Code& code);

  // Sums.
  virtual void sums(const Tree& t, const Here& h);
  void shared_out_sums(const Tree& t, const Here& h);
  /// The parts that all have made of sums, together; `elements` of each, for the loops' iterations.
  virtual void combine_parts(Sums& s, std::span<const Tree* const> reduced, const Expr& elements,
                             const Here& h);
  /// At a point, of the first loop's iterations `first`, `first` + `step` and so on.
  std::vector<State> sum_of_parts(Sums& s, std::span<const Tree* const> reduced,
                                  const Expr& elements, const Here& h, const Expr& first,
                                  const Expr& step);
  Sums open_sums(const Tree& t, const Here& h);
  /// Workspaces for so many parts of the sums at a node.
  Sums open_parts(const Tree& t, const Expr& parts, const Here& h);
  /// `existing`: only points that are there.
  void each_sum(const Sums& s, const Here& h, bool existing, const Code& code);
  std::pair<int, Expr> state_at(const Sums& s, const Point& p) const;
  std::vector<State> read_sums(Sums& s, const Point& p);
  void write_sums(Sums& s, const Point& p, const std::vector<State>& states);
  /// Which copy of its sum's registers a body combines with.
  std::int64_t copy_of(const Sums& s, const Here& h) const;
  /// All copies at a point, combined in pairs.
  std::vector<State> all_copies(Sums& s, const Point& p);
  // Sums that go along with a maximum (online.h).
  /// A Then of the body of a maximum and those of sums that it rescales.
  void then_rescale(const Tree& t, std::span<const int> sums, const Here& h);
  /// The lanes of such a sum, as of the maximum of all of them.
  void rescale_lanes(Sums& s, const Point& p, std::vector<State>& states);
  void finish(Sums& s, const Here& h);
  void complete(Sums& s, const Here& h, const std::vector<State>& states);
  Expr place_of(int stage, const Point& p) const;

  // Results.
  int result_lanes(int stage) const;
  bool fits_registers(int stage, const Box& box, const Here& h) const;
  void place_result(int stage, const Here& h);
  CachePolicy policy_of(const Point& p) const;
  void deliver(int stage, const Here& h, const std::vector<Value>& values);
  void provide_results(int body, const Point& p);
  void provide_near(int body, const Here& h);
  void open_updates();
  void close_updates();
  void copy_waiting();
  /// All points of a box, whose last side may go by vectors. Shared: distributed over the workers.
  void box_loops(const Box& box, const Here& h, int lanes, bool existing, const Code& code);

  const Region& r_;
  const Tree& tree_;
  const Schedule& schedule_;
  const Target& target_;
  ProgramBuilder b_;
  Emitter e_;
  Arithmetic arithmetic_;
  Bind dealt_;               ///< of loops that are shared out
  std::vector<bool> stored_; ///< by stage: stored_stages()
  std::vector<Path> paths_;
  std::map<const Tree*, std::vector<int>> bodies_;
  std::vector<std::vector<bool>> overreaches_; ///< by stage and axis
  std::vector<std::vector<int>> computed_;     ///< by stage with a body: see computed_with
  OnlineSums online_;
  std::map<const Tree*, std::vector<int>>
      rescaled_at_; ///< by Then: sums inside of it whose maximum is on its first side
  std::map<const Tree*, std::vector<int>>
      lives_at_; ///< stages whose results are made and read there
  std::vector<Result> results_;
  std::vector<bool> is_read_; ///< by stage: by bodies other than its own
  std::vector<int> waiting_;  ///< outputs that are stored last, from memory
  std::vector<bool> waits_;   ///< by stage
  std::map<const Tree*, std::map<std::vector<std::int64_t>, std::vector<StateVariables>>>
      state_registers_;
  std::map<const Tree*, std::vector<std::vector<int>>> state_buffers_;
  std::map<const Tree*, int> near_buffers_;
  std::vector<std::vector<Sums*>> open_; ///< by stage: sums that are open, outermost first
  std::vector<NearCopy*> near_;
  std::vector<WindowCopy> windows_;                        ///< that bodies inside read
  const Tree* prefetch_ = nullptr;                         ///< the one around
  std::set<std::pair<int, std::uint64_t>> asked_;          ///< inside of it: operands and offsets
  std::vector<LaneRows> read_rows_, stored_rows_;          ///< that bodies inside read and make
  std::map<std::pair<const Tree*, int>, int> row_buffers_; ///< by Near, or by loop and output
  std::vector<Pending>* pending_ = nullptr;                ///< where stores wait; null: they do not
  std::vector<int> updated_; ///< by output: the buffer that a scatter updates
  struct FactorTile {
    int buffer = -1;
    Expr place, stride;
    std::int64_t stretch = -1; ///< of the code in which it was loaded
    int used = 0;
  };
  FactorTile factor_tiles_[kTiles];
  int sum_tiles_ = 0, turn_ = 0; ///< tiles that hold sums; they come first
  int scratch_[2] = {-1, -1};    ///< buffers of a tile of the left and of the right side
  Expr pieces_ = Expr(1);
  int written_ = 0; ///< bodies
};

} // namespace egret::kernel::loops
