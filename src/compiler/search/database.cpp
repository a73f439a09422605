#include "compiler/search/database.h"

#include "compiler/search/sqlite.h"
#include "kernel/schedule.h"
#include "support/cache_folder.h"
#include "support/fail.h"
#include "support/hash.h"
#include "support/warn.h"

#include <bit>
#include <charconv>
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
constexpr std::int64_t kApplication = 0x65677274; // "egrt"
constexpr std::int64_t kDay = 86400;

// `mark` is a hash of a row's other columns (but `used`): what a disk did to a page that still
// reads as one is found by it.
constexpr const char* kSchema = R"(
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS choices(
  region TEXT NOT NULL, target TEXT NOT NULL, workers INTEGER NOT NULL, generators TEXT NOT NULL,
  schedule TEXT NOT NULL, name TEXT NOT NULL, device TEXT NOT NULL, effort TEXT NOT NULL,
  seconds REAL NOT NULL, spread REAL NOT NULL, greedy_seconds REAL NOT NULL, error REAL NOT NULL,
  candidates INTEGER NOT NULL, made INTEGER NOT NULL, used INTEGER NOT NULL, mark TEXT NOT NULL,
  PRIMARY KEY(region, target, workers, generators)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS trials(
  region TEXT NOT NULL, target TEXT NOT NULL, workers INTEGER NOT NULL, generators TEXT NOT NULL,
  schedule TEXT NOT NULL, state TEXT NOT NULL, message TEXT NOT NULL, seconds REAL NOT NULL,
  ratio REAL NOT NULL, error REAL NOT NULL, made INTEGER NOT NULL, mark TEXT NOT NULL,
  PRIMARY KEY(region, target, workers, generators, schedule)) WITHOUT ROWID;
PRAGMA application_id = 1701278324;
COMMIT;
)";
constexpr const char* kOfKey = " WHERE region=?1 AND target=?2 AND workers=?3 AND generators=?4";

std::int64_t now() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string hex(std::uint64_t word) {
  return fmt::format("{:016x}", word);
}

// 0 for what is no word; a mark then differs.
std::uint64_t word_of(const std::string& hex) {
  std::uint64_t word = 0;
  std::from_chars(hex.data(), hex.data() + hex.size(), word, 16);
  return word;
}

Statement& bind_key(Statement& statement, const TuningKey& key) {
  return statement.bind(1, hex(key.region))
      .bind(2, hex(key.target))
      .bind(3, std::int64_t{key.workers})
      .bind(4, hex(key.generators));
}

std::uint64_t mark_of(const TuningKey& key) {
  return combine(combine(key.region, key.target),
                 combine(static_cast<std::uint64_t>(key.workers), key.generators));
}

void add(std::uint64_t& mark, std::initializer_list<std::string_view> texts,
         std::initializer_list<double> numbers, std::initializer_list<std::int64_t> integers) {
  for (const std::string_view text : texts)
    mark = combine(mark, hash_text(text));
  for (const double number : numbers)
    mark = combine(mark, std::bit_cast<std::uint64_t>(number));
  for (const std::int64_t integer : integers)
    mark = combine(mark, static_cast<std::uint64_t>(integer));
}

std::string mark_of(const TuningKey& key, const TuningChoice& c) {
  std::uint64_t mark = mark_of(key);
  add(mark, {c.schedule, c.name, c.device, c.effort},
      {c.seconds, c.spread, c.greedy_seconds, c.error}, {c.candidates, c.made});
  return hex(mark);
}

std::string mark_of(const TuningKey& key, const TuningTrial& t) {
  std::uint64_t mark = mark_of(key);
  add(mark, {t.schedule, t.state, t.message}, {t.seconds, t.ratio, t.error}, {});
  return hex(mark);
}

constexpr const char* kChoiceColumns =
    "schedule, name, device, effort, seconds, spread, greedy_seconds, error, candidates, made, "
    "mark, used";

TuningChoice choice_of(const Statement& row, int first) {
  TuningChoice c;
  c.schedule = row.text(first);
  c.name = row.text(first + 1);
  c.device = row.text(first + 2);
  c.effort = row.text(first + 3);
  c.seconds = row.real(first + 4);
  c.spread = row.real(first + 5);
  c.greedy_seconds = row.real(first + 6);
  c.error = row.real(first + 7);
  c.candidates = row.integer(first + 8);
  c.made = row.integer(first + 9);
  return c;
}

constexpr const char* kTrialColumns = "schedule, state, message, seconds, ratio, error, mark";

TuningTrial trial_of(const Statement& row, int first) {
  TuningTrial t;
  t.schedule = row.text(first);
  t.state = row.text(first + 1);
  t.message = row.text(first + 2);
  t.seconds = row.real(first + 3);
  t.ratio = row.real(first + 4);
  t.error = row.real(first + 5);
  return t;
}

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
    if (mode == Mode::Frozen) {
      std::error_code error;
      if (fs::exists(*file, error))
        open_to_read();
      return;
    }
    std::error_code error;
    fs::create_directories(file->parent_path(), error);
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
    sqlite.emplace(*file, Sqlite::Mode::ReadWrite, kBusyMilliseconds);
    inode = inode_of_file();
    sqlite->run("PRAGMA cell_size_check = ON; PRAGMA trusted_schema = OFF;");
    const std::int64_t application = number("PRAGMA application_id");
    if (application != 0 && application != kApplication)
      throw SqliteError(26 /* SQLITE_NOTADB */, "it belongs to another program");
    sqlite->run("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;");
    if (application == 0)
      sqlite->run(kSchema);
    // A page of each table must read as one.
    number("SELECT count(*) FROM (SELECT 1 FROM choices LIMIT 1)");
    number("SELECT count(*) FROM (SELECT 1 FROM trials LIMIT 1)");
    writable = true;
  }

  // Where nothing may be written, not even the files beside a database that is open.
  void open_to_read() {
    writable = false;
    for (const auto how : {Sqlite::Mode::ReadOnly, Sqlite::Mode::Unchanging})
      try {
        sqlite.emplace(*file, how, kBusyMilliseconds);
        number("SELECT count(*) FROM (SELECT 1 FROM choices LIMIT 1)");
        return;
      } catch (const SqliteError&) {
        sqlite.reset();
      }
  }

  std::int64_t number(const char* sql) {
    Statement statement(*sqlite, sql);
    return statement.step() ? statement.integer(0) : 0;
  }

  // The damaged file makes room for a fresh one, unless another process was faster.
  void start_afresh() {
    sqlite.reset();
    const fs::path lock_file = file->string() + ".lock";
    const int lock = ::open(lock_file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (lock >= 0)
      flock(lock, LOCK_EX);
    if (inode == 0 || inode_of_file() == inode) {
      std::error_code error;
      for (const char* end : {"", "-wal", "-shm"})
        fs::remove(file->string() + end, error);
    }
    inode = 0;
    open();
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
          warn_once("tuning database: {} is damaged ({}); it is started afresh", file->string(),
                    error.what());
          if (inode == 0)
            inode = inode_of_file();
          try {
            start_afresh();
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

  bool drop_damaged(const char* table, const TuningKey& key) {
    warn_once("tuning database: {} has a damaged entry; it is dropped", file->string());
    if (writable && mode == Mode::Normal) {
      Statement remove(*sqlite, std::string("DELETE FROM ") + table + kOfKey);
      bind_key(remove, key).run();
    }
    return false;
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
  return folder / "tuning-1.db";
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
    Statement query(*impl_->sqlite,
                    std::string("SELECT ") + kChoiceColumns + " FROM choices" + kOfKey);
    if (!bind_key(query, key).step())
      return std::nullopt;
    TuningChoice found = choice_of(query, 0);
    if (query.text(10) != mark_of(key, found)) {
      impl_->drop_damaged("choices", key);
      return std::nullopt;
    }
    if (impl_->writable && query.integer(11) < now() - kDay) { // once a day is enough
      Statement use(*impl_->sqlite, std::string("UPDATE choices SET used=?5") + kOfKey);
      bind_key(use, key).bind(5, now()).run();
    }
    return found;
  });
}

void TuningDatabase::put(const TuningKey& key, const TuningChoice& choice) {
  if (impl_->mode == Mode::Frozen)
    return;
  impl_->attempt<bool>("cannot be written to", [&] {
    if (!impl_->writable)
      return false;
    TuningChoice c = choice;
    if (c.made == 0)
      c.made = now();
    Statement insert(*impl_->sqlite, "INSERT OR REPLACE INTO choices VALUES"
                                     "(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16)");
    bind_key(insert, key)
        .bind(5, c.schedule)
        .bind(6, c.name)
        .bind(7, c.device)
        .bind(8, c.effort)
        .bind(9, c.seconds)
        .bind(10, c.spread)
        .bind(11, c.greedy_seconds)
        .bind(12, c.error)
        .bind(13, c.candidates)
        .bind(14, c.made)
        .bind(15, now())
        .bind(16, mark_of(key, c))
        .run();
    impl_->bound();
    return true;
  });
}

std::vector<TuningTrial> TuningDatabase::trials(const TuningKey& key) {
  using Found = std::vector<TuningTrial>;
  return impl_->attempt<Found>("cannot be read", [&] {
    Found found;
    Statement query(*impl_->sqlite,
                    std::string("SELECT ") + kTrialColumns + " FROM trials" + kOfKey);
    bind_key(query, key);
    while (query.step()) {
      TuningTrial trial = trial_of(query, 0);
      if (query.text(6) != mark_of(key, trial)) {
        impl_->drop_damaged("trials", key);
        return Found{};
      }
      found.push_back(std::move(trial));
    }
    return found;
  });
}

void TuningDatabase::put(const TuningKey& key, const TuningTrial& trial) {
  if (impl_->mode == Mode::Frozen)
    return;
  impl_->attempt<bool>("cannot be written to", [&] {
    if (!impl_->writable)
      return false;
    Statement insert(*impl_->sqlite, "INSERT OR REPLACE INTO trials VALUES"
                                     "(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12)");
    bind_key(insert, key)
        .bind(5, trial.schedule)
        .bind(6, trial.state)
        .bind(7, trial.message)
        .bind(8, trial.seconds)
        .bind(9, trial.ratio)
        .bind(10, trial.error)
        .bind(11, now())
        .bind(12, mark_of(key, trial))
        .run();
    impl_->bound();
    return true;
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
    return removed;
  });
}

std::vector<std::pair<TuningKey, TuningChoice>> TuningDatabase::choices() {
  using All = std::vector<std::pair<TuningKey, TuningChoice>>;
  return impl_->attempt<All>("cannot be read", [&] {
    All all;
    Statement query(*impl_->sqlite,
                    fmt::format("SELECT region, target, workers, generators, {} FROM choices "
                                "ORDER BY region, target, workers, generators",
                                kChoiceColumns));
    while (query.step()) {
      const TuningKey key{word_of(query.text(0)), word_of(query.text(1)),
                          static_cast<int>(query.integer(2)), word_of(query.text(3))};
      TuningChoice choice = choice_of(query, 4);
      if (query.text(14) == mark_of(key, choice))
        all.emplace_back(key, std::move(choice));
    }
    return all;
  });
}

std::vector<std::string> TuningDatabase::verify() {
  using Lines = std::vector<std::string>;
  return impl_->attempt<Lines>("cannot be read", [&] {
    Lines lines;
    Statement pages(*impl_->sqlite, "PRAGMA integrity_check");
    while (pages.step())
      if (std::string line = pages.text(0); line != "ok")
        lines.push_back(std::move(line));
    auto check = [&](const char* table, const char* columns, auto&& mark_is) {
      Statement rows(
          *impl_->sqlite,
          fmt::format("SELECT region, target, workers, generators, {} FROM {}", columns, table));
      while (rows.step()) {
        const TuningKey key{word_of(rows.text(0)), word_of(rows.text(1)),
                            static_cast<int>(rows.integer(2)), word_of(rows.text(3))};
        const std::string schedule = rows.text(4);
        if (!mark_is(rows, key))
          lines.push_back(
              fmt::format("{}: the entry of region {} is damaged", table, rows.text(0)));
        else
          try {
            kernel::parse_schedule(schedule);
          } catch (const Error& error) {
            lines.push_back(fmt::format("{}: region {}: {}", table, rows.text(0), error.what()));
          }
      }
    };
    check("choices", kChoiceColumns, [](const Statement& row, const TuningKey& key) {
      return row.text(14) == mark_of(key, choice_of(row, 4));
    });
    check("trials", kTrialColumns, [](const Statement& row, const TuningKey& key) {
      return row.text(10) == mark_of(key, trial_of(row, 4));
    });
    return lines;
  });
}

} // namespace egret::compiler
