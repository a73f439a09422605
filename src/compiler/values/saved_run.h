// A run on disk: the compiled graph, where its nodes come from, its launches and the values that
// they stored (docs/seeing.md has the format).
#pragma once

#include "compiler/record/origins.h"
#include "compiler/values/value_summary.h"
#include "egret/ir.h"

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

namespace egret::compiler {

/// The names of a kernel and the values of the compiled graph that a launch of it reads and writes.
struct SavedLaunch {
  std::string kernel, schedule;
  std::vector<ir::NodeId> operands, outputs;
};

struct SavedValue {
  int launch = -1; ///< that stored it; -1: an input
  DType dtype = DType::F32;
  backend::reference::Dims dims;
  ValueSummary summary;
  bool whole = false; ///< its elements are kept too
};

/// What a run is, without its values.
struct RunDescription {
  std::string identity; ///< equal for runs that give the same values
  std::string program;  ///< equal for runs that were given the same graph, but for dtypes
  std::string file;     ///< the graph's, for people; may be empty
  std::string device, effort;
  bool fuse = true;
  ir::Graph graph;                 ///< that was compiled
  std::vector<NodeOrigin> origins; ///< by node of it
  std::vector<SavedLaunch> launches;

  /// "%4: f32[12] = sum(%3) axes=[1], line 5 of small.txt"
  std::string node_text(ir::NodeId node) const;
};

struct SavedRun : RunDescription {
  static constexpr int kVersion = 1;
  std::filesystem::path folder;
  bool complete = false; ///< false: the run, or its file, was cut short
  std::map<ir::NodeId, SavedValue> values;

  /// The elements of a value that is kept whole. Error(File) where the file's bytes are not those
  /// that were written.
  backend::reference::HostArray load(ir::NodeId node) const;
};

/// Error(File) naming the file and line of what is missing, damaged or of another version. A last
/// line that was cut short is left out.
SavedRun read_saved_run(const std::filesystem::path& folder);

/// Makes the folder of a run where it is missing. Error(File) for one that cannot be written to:
/// before long work, so that its values are not lost at the end.
void make_run_folder(const std::filesystem::path& folder);

/// Writes a run into a folder, value by value, so that one that is cut short can go on: values that
/// the folder holds of the same run are kept. No more than `most_bytes` of elements are written;
/// beyond that only summaries.
class SavedRunWriter {
public:
  static constexpr const char* kFile = "values.jsonl";

  /// Errors are those of make_run_folder(), and Error(State) for a folder that holds another run.
  SavedRunWriter(std::filesystem::path folder, RunDescription run, std::int64_t most_bytes);

  bool has(ir::NodeId node) const { return run_.values.contains(node); }
  /// The elements of a value that the folder holds whole; nothing for others.
  std::optional<backend::reference::HostArray> kept(ir::NodeId node) const;
  void add(ir::NodeId node, int launch, const backend::reference::HostArray& array);
  /// The last line, without which the run counts as cut short.
  void finish();

  const SavedRun& run() const { return run_; }

private:
  void begin();
  void resume(SavedRun before);
  void line(const std::string& text);

  SavedRun run_;
  std::int64_t bytes_left_;
  std::ofstream journal_;
};

} // namespace egret::compiler
