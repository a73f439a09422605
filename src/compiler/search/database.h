// What searches have found, kept on disk: for each region on each machine the schedule that won,
// and every candidate that was tried. Any number of threads and processes may use one file at a
// time. Nothing here ever fails a caller: what the disk refuses is told once as a warning, and the
// search goes on without memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace egret::compiler {

/// What a measurement depends on. All that is in here decides; there is no rounding.
struct TuningKey {
  std::uint64_t region = 0;     ///< layouts, alignments, dtypes, sizes, tags
  std::uint64_t target = 0;     ///< Target::fingerprint
  int workers = 1;              ///< that launches may use
  std::uint64_t generators = 0; ///< of the code that makes, checks and times candidates
  friend bool operator==(const TuningKey&, const TuningKey&) = default;
};

/// The schedule that won.
struct TuningChoice {
  std::string schedule;
  std::string name;            ///< of the region, for people
  std::string device;          ///< likewise
  std::string effort;          ///< of the search
  double seconds = 0;          ///< of a launch
  double spread = 0;           ///< from `seconds` to the median
  double greedy_seconds = 0;   ///< of the greedy schedule, in the same rounds
  double error = 0;            ///< largest ratio of difference to tolerance in its verification
  std::int64_t candidates = 0; ///< tried or known from before
  std::int64_t made = 0;       ///< seconds since 1970
};

/// A candidate's fate.
struct TuningTrial {
  std::string schedule;
  std::string state;             ///< "timed", or why it was rejected: "wrong", "hang" ...
  std::string message;           ///< of a rejection
  double seconds = 0, ratio = 0; ///< of a launch, and over the greedy schedule's
  double error = 0;
};

struct TuningStats {
  std::string file;
  std::int64_t bytes = 0, choices = 0, trials = 0, rejected = 0, stale = 0;
  std::int64_t oldest = 0, newest = 0; ///< of choices, seconds since 1970
  bool readable = false, writable = false;
};

struct PruneOptions {
  std::optional<std::int64_t> keep_days; ///< what was used later stays
  std::optional<std::int64_t> most;      ///< choices, those used last stay
  bool stale = false;                    ///< of other versions of the generators
  bool all = false;
};

/// Rows that are kept; those used longest ago leave.
struct TuningLimits {
  std::int64_t choices = 20000, trials = 200000;
};

class TuningDatabase {
public:
  enum class Mode : std::uint8_t {
    Normal,
    Frozen, ///< choices are only read: nothing is written, not even when they were used
    Inspect ///< likewise, and the folder stays as it is: nothing is made beside the file
  };

  /// `folder`: where tuning-2.db is or will be; without one there is no memory.
  explicit TuningDatabase(std::optional<std::filesystem::path> folder, Mode mode = Mode::Normal,
                          TuningLimits limits = {});
  ~TuningDatabase();
  TuningDatabase(const TuningDatabase&) = delete;
  TuningDatabase& operator=(const TuningDatabase&) = delete;

  Mode mode() const noexcept;
  std::optional<TuningChoice> choice(const TuningKey& key);
  /// Whether it was written.
  bool put(const TuningKey& key, const TuningChoice& choice);
  std::vector<TuningTrial> trials(const TuningKey& key);
  bool put(const TuningKey& key, const TuningTrial& trial);

  /// Whether a search has remembered a choice here, of any version.
  bool has_measured_choices();
  /// `generators`: of this version, to tell which entries are stale.
  TuningStats stats(std::uint64_t generators);
  /// Choices removed.
  std::int64_t prune(const PruneOptions& options, std::uint64_t generators);
  /// All choices as JSON, and back: Error(Parse) that names the entry when the text is none of
  /// export_json(), and nothing is imported then. Gives the number of choices that were written.
  std::string export_json();
  std::int64_t import_json(const std::string& text);
  std::vector<std::pair<TuningKey, TuningChoice>> choices(); ///< in the order of keys
  /// What is wrong with the file, a line each; empty when nothing is. Changes nothing: what is
  /// damaged is moved to tuning-2.db.bad when a program next uses it, which goes on with a fresh
  /// file and the entries that could still be read.
  std::vector<std::string> verify();

  /// tuning-2.db in a folder.
  static std::filesystem::path file_in(const std::filesystem::path& folder);

private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

} // namespace egret::compiler
