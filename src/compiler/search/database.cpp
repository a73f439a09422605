#include "compiler/search/database.h"

#include "compiler/search/database_rows.h"
#include "compiler/search/sqlite.h"
#include "support/cache_folder.h"
#include "support/fail.h"
#include "support/private_file.h"
#include "support/warn.h"

#include <array>
#include <chrono>
#include <mutex>
#include <thread>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace egret::compiler {

namespace fs = std::filesystem;

namespace {

constexpr int kBusyMilliseconds = 5000, kTurns = 20;
constexpr std::int64_t kDay = 86400;

std::int64_t now() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

constexpr int kCorrupt = 11, kNotADatabase = 26; // SQLITE_CORRUPT, SQLITE_NOTADB

/// A row whose checksum does not fit is damage like any other.
template <class Row>
void expect_mark(const Row& row) {
  if (row.mark != mark_of(row))
    throw SqliteError(kCorrupt, "an entry's checksum does not fit");
}

/// Only this user may read and write what is there.
void make_private(const fs::path& path) {
  struct stat status {};
  constexpr mode_t kOthers = S_IRWXG | S_IRWXO;
  if (::stat(path.c_str(), &status) == 0 && (status.st_mode & kOthers) != 0)
    ::chmod(path.c_str(), 0600);
}

constexpr const char* kBad = ".bad";
constexpr std::array kEnds{"", "-wal", "-shm"};

} // namespace

struct TuningDatabase::Impl {
  std::optional<fs::path> file;
  Mode mode;
  TuningLimits limits;
  std::mutex guard;
  std::optional<Sqlite> sqlite;
  std::uint64_t inode = 0; ///< of the file that is open
  bool writable = false, opened = false, warned = false;
  std::uint64_t written = 0;
  std::int64_t salvaged = 0; ///< entries of a damaged file
  std::string unreadable;    ///< why the file could not be opened to be read
  bool empty = false;        ///< the file has no tables: it is as good as none

  template <class... Args>
  void warn_once(fmt::format_string<Args...> format, Args&&... args) {
    if (!warned)
      warn(format, std::forward<Args>(args)...);
    warned = true;
  }

  std::uint64_t inode_of_file() const {
    struct stat status {};
    return stat(file->c_str(), &status) == 0 ? status.st_ino : 0;
  }

  void open() {
    opened = true;
    if (!file)
      return;
    if (mode != Mode::Normal) {
      std::error_code error;
      if (fs::exists(*file, error))
        open_to_read();
      return;
    }
    make_private_folders(file->parent_path());
    try {
      for (int turn = 0;; ++turn)
        try {
          open_to_write();
          return;
        } catch (const SqliteError& failure) {
          sqlite.reset();
          if (!failure.busy() || turn == kTurns)
            throw;
          // Of several that make the file at the same time one does, and the others wait.
          std::this_thread::sleep_for(std::chrono::milliseconds(10 * (turn + 1)));
        }
    } catch (const SqliteError& failure) {
      if (failure.damaged())
        throw;
      warn_unwritable(file->parent_path(), failure.what());
      open_to_read();
    }
  }

  void open_to_write() {
    // SQLite gives the files beside a database the permissions that it has.
    if (const int fd = ::open(file->c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600); fd >= 0)
      ::close(fd);
    for (const char* end : kEnds)
      make_private(file->string() + end);
    sqlite.emplace(*file, Sqlite::Mode::ReadWrite, kBusyMilliseconds);
    inode = inode_of_file();
    sqlite->run("PRAGMA cell_size_check = ON; PRAGMA trusted_schema = OFF; "
                "PRAGMA recursive_triggers = ON;");
    const std::int64_t application = number("PRAGMA application_id");
    if (application != 0 && application != kTuningApplication)
      throw SqliteError(kNotADatabase, "it belongs to another program");
    sqlite->run("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;");
    if (application == 0)
      sqlite->run(kTuningSchema);
    // A page of each table must read as one.
    number("SELECT count(*) FROM (SELECT 1 FROM choices LIMIT 1)");
    number("SELECT count(*) FROM (SELECT 1 FROM trials LIMIT 1)");
    number("SELECT count(*) FROM contents");
    writable = true;
  }

  /// Whether another process writes to the file, or was killed while it did.
  bool has_log() const {
    std::error_code error;
    const auto bytes = fs::file_size(file->string() + "-wal", error);
    return !error && bytes > 0;
  }

  // Where nothing may be written, not even the files beside a database that is open.
  void open_to_read() {
    writable = empty = false;
    using Open = Sqlite::Mode;
    const bool nobody_writes = mode == Mode::Inspect && !has_log();
    for (const auto how : {nobody_writes ? Open::Unchanging : Open::ReadOnly, Open::Unchanging})
      try {
        sqlite.emplace(*file, how, kBusyMilliseconds);
        if ((how == Open::ReadOnly || !has_log()) && has_no_tables()) {
          empty = true;
          sqlite.reset(); // as if there were no file
          return;
        }
        number("SELECT count(*) FROM (SELECT 1 FROM choices LIMIT 1)");
        return;
      } catch (const SqliteError& error) {
        sqlite.reset();
        unreadable = error.what();
      }
  }

  /// As open_to_write() makes it before its tables, and leaves it where the disk is full. More
  /// pages than one were a database once.
  bool has_no_tables() {
    const std::int64_t pages = number("PRAGMA page_count");
    if (pages == 0) // the one or the other, and nothing tells which
      throw SqliteError(kNotADatabase, "it was cut to nothing, or the disk was full when it was "
                                       "made; the next run that searches makes it anew");
    return pages == 1 && number("PRAGMA application_id") == 0 &&
           number("SELECT count(*) FROM sqlite_master") == 0;
  }

  std::int64_t number(const char* sql) {
    Statement statement(*sqlite, sql);
    return statement.step() ? statement.integer(0) : 0;
  }

  // The damaged file is kept under another name, unless another process was faster, and what can be
  // read of it goes into a fresh one.
  void start_afresh() {
    sqlite.reset();
    const fs::path lock_file = file->string() + ".lock";
    const int lock = ::open(lock_file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (lock >= 0)
      flock(lock, LOCK_EX);
    const bool ours = inode == 0 || inode_of_file() == inode;
    const std::string bad = file->string() + kBad;
    if (ours)
      for (const char* end : kEnds) {
        ::unlink((bad + end).c_str());
        ::rename((file->string() + end).c_str(), (bad + end).c_str());
      }
    inode = 0;
    open();
    if (ours && sqlite && writable)
      try {
        const bool logged = ::access((bad + "-wal").c_str(), F_OK) == 0;
        Sqlite damaged(bad, logged ? Sqlite::Mode::ReadOnly : Sqlite::Mode::Unchanging,
                       kBusyMilliseconds);
        salvaged = salvage(damaged, *sqlite);
      } catch (const SqliteError&) { // nothing can be read of it
        sqlite.reset();
        open();
      }
    if (lock >= 0)
      close(lock);
  }

  // Runs what may throw SqliteError; the value of T{} when there is no database or it fails.
  template <class T, class F>
  T attempt(const char* what, F&& run) {
    std::lock_guard lock(guard);
    for (int turn = 0; turn < 2; ++turn) {
      try {
        if (!opened)
          open();
        if (!sqlite)
          return T{};
        return run();
      } catch (const SqliteError& error) {
        if (error.damaged() && mode == Mode::Normal && turn == 0) {
          if (inode == 0)
            inode = inode_of_file();
          try {
            salvaged = 0;
            start_afresh();
            warn_once(
                "tuning database: {0} is damaged ({1}); it is started afresh with {2} entries "
                "that could be read, and kept as {0}{3}",
                file->string(), error.what(), salvaged, kBad);
            continue;
          } catch (const SqliteError&) {
          }
        }
        if (error.busy()) // this once; others write
          return T{};
        if (error.full())
          warn_unwritable(file->parent_path(), error.what());
        else
          warn_once("tuning database: {}: {} ({}); the search goes on without it", file->string(),
                    what, error.what());
        sqlite.reset();
        return T{};
      }
    }
    return T{};
  }

  /// Databases of other formats, and with `bad` what was damaged.
  void remove_old_files(bool bad) const {
    std::error_code error;
    const std::string own = file->filename().string();
    std::vector<fs::path> old;
    for (auto it = fs::directory_iterator(file->parent_path(), error);
         !error && it != fs::directory_iterator(); it.increment(error))
      if (const std::string name = it->path().filename().string();
          (name.starts_with("tuning-") && !name.starts_with(own)) ||
          (bad && name.starts_with(own + kBad)))
        old.push_back(it->path());
    for (const fs::path& path : old)
      fs::remove(path, error);
  }

  // Keeps the tables within their limits.
  void bound() {
    if (written++ % 256 != 0)
      return;
    keep_newest("choices", "used", limits.choices);
    keep_newest("trials", "made", limits.trials);
  }
  std::int64_t keep_newest(const char* table, const char* date, std::int64_t most) {
    const std::int64_t before = number(fmt::format("SELECT count(*) FROM {}", table).c_str());
    if (before <= most)
      return 0;
    sqlite->run(
        fmt::format("DELETE FROM {0} WHERE (region, target, workers, generators) IN (SELECT "
                    "region, target, workers, generators FROM {0} ORDER BY {1} LIMIT {2})",
                    table, date, before - most)
            .c_str());
    return before - number(fmt::format("SELECT count(*) FROM {}", table).c_str());
  }
};

fs::path TuningDatabase::file_in(const fs::path& folder) {
  return folder / "tuning-2.db";
}

TuningDatabase::TuningDatabase(std::optional<fs::path> folder, Mode mode, TuningLimits limits)
    : impl_(std::make_unique<Impl>()) {
  if (folder)
    impl_->file = file_in(*folder);
  impl_->mode = mode;
  impl_->limits = limits;
}
TuningDatabase::~TuningDatabase() = default;

TuningDatabase::Mode TuningDatabase::mode() const noexcept {
  return impl_->mode;
}

std::optional<TuningChoice> TuningDatabase::choice(const TuningKey& key) {
  using Found = std::optional<TuningChoice>;
  return impl_->attempt<Found>("cannot be read", [&]() -> Found {
    Statement query(*impl_->sqlite, fmt::format("{}{}", kAllChoices, kOfKey));
    if (!bind_key(query, key).step())
      return std::nullopt;
    ChoiceRow row = choice_row(query);
    expect_mark(row);
    if (impl_->writable && row.used < now() - kDay) { // once a day is enough
      row.used = now();
      Statement use(*impl_->sqlite, fmt::format("UPDATE choices SET used=?5, mark=?6{}", kOfKey));
      bind_key(use, key).bind(5, row.used).bind(6, mark_of(row)).run();
    }
    return std::move(row.choice);
  });
}

bool TuningDatabase::put(const TuningKey& key, const TuningChoice& choice) {
  if (impl_->mode != Mode::Normal)
    return false;
  return impl_->attempt<bool>("cannot be written to", [&] {
    if (!impl_->writable)
      return false;
    ChoiceRow row{key, choice, now()};
    if (row.choice.made == 0)
      row.choice.made = now();
    put_row(*impl_->sqlite, row);
    impl_->bound();
    return true;
  });
}

std::vector<TuningTrial> TuningDatabase::trials(const TuningKey& key) {
  using Found = std::vector<TuningTrial>;
  return impl_->attempt<Found>("cannot be read", [&] {
    Found found;
    Statement query(*impl_->sqlite, fmt::format("{}{}", kAllTrials, kOfKey));
    bind_key(query, key);
    while (query.step()) {
      TrialRow row = trial_row(query);
      expect_mark(row);
      found.push_back(std::move(row.trial));
    }
    return found;
  });
}

bool TuningDatabase::put(const TuningKey& key, const TuningTrial& trial) {
  if (impl_->mode != Mode::Normal)
    return false;
  return impl_->attempt<bool>("cannot be written to", [&] {
    if (!impl_->writable)
      return false;
    put_row(*impl_->sqlite, TrialRow{key, trial, now()});
    impl_->bound();
    return true;
  });
}

bool TuningDatabase::has_measured_choices() {
  return impl_->attempt<bool>("cannot be read", [&] {
    return impl_->number("SELECT EXISTS(SELECT 1 FROM choices WHERE effort != 'quick')") != 0;
  });
}

TuningStats TuningDatabase::stats(std::uint64_t generators) {
  TuningStats stats = impl_->attempt<TuningStats>("cannot be read", [&] {
    TuningStats s;
    s.readable = true;
    s.writable = impl_->writable;
    s.choices = impl_->number("SELECT count(*) FROM choices");
    s.trials = impl_->number("SELECT count(*) FROM trials");
    s.rejected = impl_->number("SELECT count(*) FROM trials WHERE state != 'timed'");
    s.oldest = impl_->number("SELECT min(made) FROM choices");
    s.newest = impl_->number("SELECT max(made) FROM choices");
    Statement stale(*impl_->sqlite, "SELECT count(*) FROM choices WHERE generators != ?1");
    stale.bind(1, hex(generators)).step();
    s.stale = stale.integer(0);
    return s;
  });
  if (std::lock_guard lock(impl_->guard); impl_->empty)
    stats.readable = true;
  if (impl_->file) {
    stats.file = impl_->file->string();
    std::error_code error;
    for (const char* end : {"", "-wal"})
      if (const auto bytes = fs::file_size(stats.file + end, error); !error)
        stats.bytes += static_cast<std::int64_t>(bytes);
  }
  return stats;
}

std::int64_t TuningDatabase::prune(const PruneOptions& options, std::uint64_t generators) {
  return impl_->attempt<std::int64_t>("cannot be written to", [&] {
    if (!impl_->writable)
      return std::int64_t{0};
    const std::int64_t before = impl_->number("SELECT count(*) FROM choices");
    auto remove = [&](const std::string& condition, auto&& bind) {
      for (const char* table : {"choices", "trials"}) {
        const char* date = table[0] == 'c' ? "used" : "made";
        Statement statement(*impl_->sqlite,
                            fmt::format("DELETE FROM {} WHERE {}", table,
                                        fmt::format(fmt::runtime(condition), date)));
        bind(statement);
        statement.run();
      }
    };
    if (options.all)
      remove("1", [](Statement&) {});
    if (options.stale)
      remove("generators != ?1", [&](Statement& s) { s.bind(1, hex(generators)); });
    if (options.keep_days)
      remove("{} < ?1", [&](Statement& s) { s.bind(1, now() - *options.keep_days * kDay); });
    if (options.most)
      impl_->keep_newest("choices", "used", *options.most);
    const std::int64_t removed = before - impl_->number("SELECT count(*) FROM choices");
    impl_->sqlite->run("PRAGMA wal_checkpoint(TRUNCATE); VACUUM;");
    if (options.stale || options.all)
      impl_->remove_old_files(options.all);
    return removed;
  });
}

std::vector<std::pair<TuningKey, TuningChoice>> TuningDatabase::choices() {
  using All = std::vector<std::pair<TuningKey, TuningChoice>>;
  return impl_->attempt<All>("cannot be read", [&] {
    All all;
    Statement query(*impl_->sqlite,
                    fmt::format("{} ORDER BY region, target, workers, generators", kAllChoices));
    while (query.step()) {
      ChoiceRow row = choice_row(query);
      expect_mark(row);
      all.emplace_back(row.key, std::move(row.choice));
    }
    return all;
  });
}

std::vector<std::string> TuningDatabase::verify() {
  std::lock_guard lock(impl_->guard);
  std::error_code missing;
  if (!impl_->file || !fs::exists(*impl_->file, missing))
    return {};
  auto look = [&]() -> std::vector<std::string> {
    try {
      if (!impl_->opened)
        impl_->open();
      if (impl_->empty)
        return {};
      if (!impl_->sqlite)
        return {fmt::format("it cannot be read: {}", impl_->unreadable)};
      return problems_of(*impl_->sqlite);
    } catch (const SqliteError& error) {
      return {error.what()};
    }
  };
  std::vector<std::string> problems = look();
  if (!problems.empty() && impl_->mode == Mode::Inspect && impl_->has_log()) {
    // It was opened as a file that nobody writes to, and somebody does.
    impl_->sqlite.reset();
    impl_->opened = false;
    problems = look();
  }
  for (std::string& problem : problems)
    problem = fmt::format("{}: {}", impl_->file->string(), problem);
  return problems;
}

} // namespace egret::compiler
