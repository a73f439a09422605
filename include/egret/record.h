// A file of what is compiled and run, for `egret view` (docs/seeing.md).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace egret {

/// While one lives, everything that the process compiles is written to a file: each pass with the
/// graph behind it and where its nodes come from, what searches tried, kernels with their source,
/// memory; and the time of each launch, which then waits for the one before. The file appears when
/// the record is closed, which also finds the lines of the program that recorded its operations
/// (docs/seeing.md). One at a time: Error(State) for a second one.
///
///   Record record("step.jsonl");
///   step(model, optimizer, x, y);
///   record.close();
///
/// Programs that were compiled before it began are not in it.
class Record {
public:
  /// Error(File) for a path that cannot be written to, before anything runs.
  explicit Record(const std::string& path);
  /// Closes it; an error of the file is lost then.
  ~Record();
  Record(const Record&) = delete;
  Record& operator=(const Record&) = delete;

  /// Completes the file; what other threads still compile or run is in it as far as it has come.
  /// Error(File) names the path; a second call does nothing.
  void close();

  /// The text that a graph was read from: its nodes have line `lines[node]`, from 1, of it. `hash`
  /// is the graph's ir::canonical_hash.
  void add_source(std::string_view file, std::string_view text, std::uint64_t hash,
                  std::vector<int> lines);

private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

} // namespace egret
