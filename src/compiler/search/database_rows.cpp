#include "compiler/search/database_rows.h"

#include "support/hash.h"

#include <fmt/format.h>

#include <bit>
#include <charconv>
#include <initializer_list>

namespace egret::compiler {

const char* const kTuningSchema = R"(
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS choices(
  region TEXT NOT NULL, target TEXT NOT NULL, workers INTEGER NOT NULL, generators TEXT NOT NULL,
  schedule TEXT NOT NULL, name TEXT NOT NULL, device TEXT NOT NULL, effort TEXT NOT NULL,
  seconds REAL NOT NULL, spread REAL NOT NULL, greedy_seconds REAL NOT NULL, error REAL NOT NULL,
  candidates INTEGER NOT NULL, made INTEGER NOT NULL, used INTEGER NOT NULL, mark INTEGER NOT NULL,
  PRIMARY KEY(region, target, workers, generators)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS trials(
  region TEXT NOT NULL, target TEXT NOT NULL, workers INTEGER NOT NULL, generators TEXT NOT NULL,
  schedule TEXT NOT NULL, state TEXT NOT NULL, message TEXT NOT NULL, seconds REAL NOT NULL,
  ratio REAL NOT NULL, error REAL NOT NULL, made INTEGER NOT NULL, mark INTEGER NOT NULL,
  PRIMARY KEY(region, target, workers, generators, schedule)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS contents(
  name TEXT NOT NULL PRIMARY KEY, tuples INTEGER NOT NULL, sum INTEGER NOT NULL) WITHOUT ROWID;
INSERT OR IGNORE INTO contents VALUES('choices', 0, 0), ('trials', 0, 0);
CREATE TRIGGER IF NOT EXISTS choices_in AFTER INSERT ON choices BEGIN UPDATE contents
  SET tuples = tuples + 1, sum = (sum + NEW.mark) & 4611686018427387903 WHERE name = 'choices'; END;
CREATE TRIGGER IF NOT EXISTS choices_out AFTER DELETE ON choices BEGIN UPDATE contents
  SET tuples = tuples - 1, sum = (sum - OLD.mark) & 4611686018427387903 WHERE name = 'choices'; END;
CREATE TRIGGER IF NOT EXISTS choices_new AFTER UPDATE ON choices BEGIN UPDATE contents
  SET sum = (sum - OLD.mark + NEW.mark) & 4611686018427387903 WHERE name = 'choices'; END;
CREATE TRIGGER IF NOT EXISTS trials_in AFTER INSERT ON trials BEGIN UPDATE contents
  SET tuples = tuples + 1, sum = (sum + NEW.mark) & 4611686018427387903 WHERE name = 'trials'; END;
CREATE TRIGGER IF NOT EXISTS trials_out AFTER DELETE ON trials BEGIN UPDATE contents
  SET tuples = tuples - 1, sum = (sum - OLD.mark) & 4611686018427387903 WHERE name = 'trials'; END;
CREATE TRIGGER IF NOT EXISTS trials_new AFTER UPDATE ON trials BEGIN UPDATE contents
  SET sum = (sum - OLD.mark + NEW.mark) & 4611686018427387903 WHERE name = 'trials'; END;
PRAGMA application_id = 1701278324;
COMMIT;
)";

namespace {

constexpr std::uint64_t kMarkBits = (std::uint64_t{1} << 62) - 1; // sums of two fit an integer

// 0 for what is no word; a mark then differs.
std::uint64_t word_of(const std::string& hex) {
  std::uint64_t word = 0;
  std::from_chars(hex.data(), hex.data() + hex.size(), word, 16);
  return word;
}

TuningKey key_of(const Statement& row) {
  return {word_of(row.text(0)), word_of(row.text(1)), static_cast<int>(row.integer(2)),
          word_of(row.text(3))};
}

std::int64_t mark(const TuningKey& key, std::initializer_list<std::string_view> texts,
                  std::initializer_list<double> numbers,
                  std::initializer_list<std::int64_t> integers) {
  std::uint64_t mark = combine(combine(key.region, key.target),
                               combine(static_cast<std::uint64_t>(key.workers), key.generators));
  for (const std::string_view text : texts)
    mark = combine(mark, hash_text(text));
  for (const double number : numbers)
    mark = combine(mark, std::bit_cast<std::uint64_t>(number + 0.0)); // SQLite has no -0
  for (const std::int64_t integer : integers)
    mark = combine(mark, static_cast<std::uint64_t>(integer));
  return static_cast<std::int64_t>(mark & kMarkBits);
}

std::int64_t number(Sqlite& database, const char* sql) {
  Statement statement(database, sql);
  return statement.step() ? statement.integer(0) : 0;
}

std::vector<std::string> schema_of(Sqlite& database) {
  std::vector<std::string> schema;
  Statement rows(database, "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name");
  while (rows.step())
    schema.push_back(
        fmt::format("{} {} {} {}", rows.text(0), rows.text(1), rows.text(2), rows.text(3)));
  return schema;
}

// The columns as they are written: a text that is no word may still read as one.
bool key_is(const Statement& row, const TuningKey& key) {
  return row.text(0) == hex(key.region) && row.text(1) == hex(key.target) &&
         row.integer(2) == key.workers && row.text(3) == hex(key.generators);
}

template <class RowOf>
void check_rows(Sqlite& database, const char* table, const char* all, RowOf row_of,
                std::vector<std::string>& problems) {
  std::int64_t rows = 0;
  std::uint64_t sum = 0;
  Statement query(database, all);
  while (query.step()) {
    const auto row = row_of(query);
    if (!key_is(query, row.key) || row.mark != mark_of(row))
      problems.push_back(
          fmt::format("{}: the entry of region {} is damaged", table, hex(row.key.region)));
    ++rows;
    sum = (sum + static_cast<std::uint64_t>(row.mark)) & kMarkBits;
  }
  Statement contents(database, "SELECT tuples, sum FROM contents WHERE name = ?1");
  if (!contents.bind(1, std::string_view(table)).step() || contents.integer(0) != rows ||
      static_cast<std::uint64_t>(contents.integer(1)) != sum)
    problems.push_back(fmt::format(
        "{}: {} entries are there, and they are not those that were written", table, rows));
}

template <class RowOf>
std::int64_t salvage_rows(Sqlite& damaged, Sqlite& fresh, const char* table, const char* all,
                          const char* last_key, RowOf row_of) {
  const std::string count = fmt::format("SELECT count(*) FROM {}", table);
  const std::int64_t before = number(fresh, count.c_str());
  // A page that cannot be read ends a scan; another begins behind it.
  for (const char* order : {"", "DESC"})
    try {
      Statement query(
          damaged,
          fmt::format("{0} ORDER BY region {1}, target {1}, workers {1}, generators {1}{2}", all,
                      order, fmt::format(fmt::runtime(last_key), order)));
      while (query.step())
        if (const auto row = row_of(query); key_is(query, row.key) && row.mark == mark_of(row))
          put_row(fresh, row);
    } catch (const SqliteError& error) {
      if (!error.damaged())
        throw;
    }
  return number(fresh, count.c_str()) - before;
}

} // namespace

std::string hex(std::uint64_t word) {
  return fmt::format("{:016x}", word);
}

Statement& bind_key(Statement& statement, const TuningKey& key) {
  return statement.bind(1, hex(key.region))
      .bind(2, hex(key.target))
      .bind(3, std::int64_t{key.workers})
      .bind(4, hex(key.generators));
}

std::int64_t mark_of(const ChoiceRow& row) {
  const TuningChoice& c = row.choice;
  return mark(row.key, {c.schedule, c.name, c.device, c.effort},
              {c.seconds, c.spread, c.greedy_seconds, c.error}, {c.candidates, c.made, row.used});
}

std::int64_t mark_of(const TrialRow& row) {
  const TuningTrial& t = row.trial;
  return mark(row.key, {t.schedule, t.state, t.message}, {t.seconds, t.ratio, t.error}, {row.made});
}

ChoiceRow choice_row(const Statement& row) {
  ChoiceRow r;
  r.key = key_of(row);
  r.choice.schedule = row.text(4);
  r.choice.name = row.text(5);
  r.choice.device = row.text(6);
  r.choice.effort = row.text(7);
  r.choice.seconds = row.real(8);
  r.choice.spread = row.real(9);
  r.choice.greedy_seconds = row.real(10);
  r.choice.error = row.real(11);
  r.choice.candidates = row.integer(12);
  r.choice.made = row.integer(13);
  r.used = row.integer(14);
  r.mark = row.integer(15);
  return r;
}

TrialRow trial_row(const Statement& row) {
  TrialRow r;
  r.key = key_of(row);
  r.trial.schedule = row.text(4);
  r.trial.state = row.text(5);
  r.trial.message = row.text(6);
  r.trial.seconds = row.real(7);
  r.trial.ratio = row.real(8);
  r.trial.error = row.real(9);
  r.made = row.integer(10);
  r.mark = row.integer(11);
  return r;
}

void put_row(Sqlite& database, const ChoiceRow& row) {
  const TuningChoice& c = row.choice;
  Statement insert(database, "INSERT OR REPLACE INTO choices VALUES"
                             "(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16)");
  bind_key(insert, row.key)
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
      .bind(15, row.used)
      .bind(16, mark_of(row))
      .run();
}

void put_row(Sqlite& database, const TrialRow& row) {
  const TuningTrial& t = row.trial;
  Statement insert(database, "INSERT OR REPLACE INTO trials VALUES"
                             "(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12)");
  bind_key(insert, row.key)
      .bind(5, t.schedule)
      .bind(6, t.state)
      .bind(7, t.message)
      .bind(8, t.seconds)
      .bind(9, t.ratio)
      .bind(10, t.error)
      .bind(11, row.made)
      .bind(12, mark_of(row))
      .run();
}

std::vector<std::string> problems_of(Sqlite& database) {
  std::vector<std::string> problems;
  if (number(database, "PRAGMA application_id") != kTuningApplication)
    return {"it is empty, damaged, or belongs to another program"};
  Statement pages(database, "PRAGMA integrity_check");
  while (pages.step())
    if (std::string line = pages.text(0); line != "ok")
      problems.push_back(std::move(line));
  Sqlite fresh(":memory:", Sqlite::Mode::ReadWrite, 0);
  fresh.run(kTuningSchema);
  if (schema_of(database) != schema_of(fresh)) {
    problems.emplace_back("its tables are not those of this version");
    return problems;
  }
  check_rows(database, "choices", kAllChoices, choice_row, problems);
  check_rows(database, "trials", kAllTrials, trial_row, problems);
  return problems;
}

std::int64_t salvage(Sqlite& damaged, Sqlite& fresh) {
  fresh.run("BEGIN IMMEDIATE");
  const std::int64_t kept =
      salvage_rows(damaged, fresh, "choices", kAllChoices, "", choice_row) +
      salvage_rows(damaged, fresh, "trials", kAllTrials, ", schedule {}", trial_row);
  fresh.run("COMMIT");
  return kept;
}

} // namespace egret::compiler
