// Measurements of a run, step by step, in files: CSV, JSON lines, and the event files that
// TensorBoard shows.
//
//   io::CsvLog log("run.csv", {"loss", "validation"});
//   log.write(10, {{"loss", 1.25}});
//
// Each record is handed to the system as one piece, so a killed run leaves whole records, but for
// the last one at most. A run that continues from a checkpoint gives the step of the checkpoint:
// records after it are cut off and written again, so the file ends up as if nothing had happened.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace egret::io {

using Measurements = std::map<std::string, double>; ///< by name

/// Where measurements go.
class MetricLog {
public:
  virtual ~MetricLog() = default;
  /// Error(File) when it cannot be written.
  virtual void write(std::int64_t step, const Measurements& values) = 0;
};

class AppendFile; // a file that grows; io/append_file.h

/// "step,loss,validation", then a line a record; what is not measured is empty, numbers have as
/// many digits as they need to be read back exactly.
class CsvLog final : public MetricLog {
public:
  /// A new file, or with `keep_to` the file that is there, up to and with that step. Error(File)
  /// when it has other columns; Error(Value) for names with commas, quotes or line ends.
  CsvLog(const std::filesystem::path& path, std::vector<std::string> columns,
         std::optional<std::int64_t> keep_to = {});
  ~CsvLog() override;
  /// Error(Value) for a name that is no column.
  void write(std::int64_t step, const Measurements& values) override;

private:
  std::vector<std::string> columns_;
  std::unique_ptr<AppendFile> file_;
};

/// {"step":10,"loss":1.25} a line; numbers that are not finite are null.
class JsonLinesLog final : public MetricLog {
public:
  /// A new file, or with `keep_to` the file that is there, up to and with that step.
  explicit JsonLinesLog(const std::filesystem::path& path,
                        std::optional<std::int64_t> keep_to = {});
  ~JsonLinesLog() override;
  void write(std::int64_t step, const Measurements& values) override;

private:
  std::unique_ptr<AppendFile> file_;
};

/// A new file events.out.tfevents.<seconds>.<host>.<process>.<n> in a folder, which is made. A run
/// that continues writes a further file, as is usual with TensorBoard.
class TensorBoardLog final : public MetricLog {
public:
  explicit TensorBoardLog(const std::filesystem::path& folder);
  ~TensorBoardLog() override;
  void write(std::int64_t step, const Measurements& values) override; ///< values in f32
  const std::filesystem::path& path() const noexcept { return path_; }

private:
  std::filesystem::path path_;
  std::unique_ptr<AppendFile> file_;
};

/// One number of an event file.
struct ScalarEvent {
  double seconds = 0; ///< since 1970, when it was written
  std::int64_t step = 0;
  std::string tag;
  float value = 0;
};

/// The numbers of an event file in order; events of other kinds are passed over. All checksums are
/// verified: Error(File) with the offset for damage and for a record that is cut off.
std::vector<ScalarEvent> load_events(const std::filesystem::path& path);

} // namespace egret::io
