// The rows of the database of choices: their tables, what proves that a row is as it was written,
// and what can be read of a file that is damaged.
#pragma once

#include "compiler/search/database.h"
#include "compiler/search/sqlite.h"

#include <cstdint>
#include <string>
#include <vector>

namespace egret::compiler {

inline constexpr std::int64_t kTuningApplication = 0x65677274; ///< "egrt", in the file's header

/// Creates the tables. Each row has a checksum of its other columns, and a table of contents holds
/// the number of rows of each table and the sum of their checksums, kept by triggers: rows that are
/// missing are found as surely as rows that changed. Connections that write need
/// `PRAGMA recursive_triggers = ON`, for rows that are replaced.
extern const char* const kTuningSchema;

inline constexpr const char* kOfKey =
    " WHERE region=?1 AND target=?2 AND workers=?3 AND generators=?4";

std::string hex(std::uint64_t word);
Statement& bind_key(Statement& statement, const TuningKey& key);

struct ChoiceRow {
  TuningKey key;
  TuningChoice choice;
  std::int64_t used = 0;
  std::int64_t mark = 0; ///< as it stands in the file
};
struct TrialRow {
  TuningKey key;
  TuningTrial trial;
  std::int64_t made = 0;
  std::int64_t mark = 0;
};
std::int64_t mark_of(const ChoiceRow& row);
std::int64_t mark_of(const TrialRow& row);

/// All columns, in the order that row_of() takes.
inline constexpr const char* kAllChoices = "SELECT * FROM choices";
inline constexpr const char* kAllTrials = "SELECT * FROM trials";
ChoiceRow choice_row(const Statement& row);
TrialRow trial_row(const Statement& row);
/// Inserts or replaces; the row's checksum is made.
void put_row(Sqlite& database, const ChoiceRow& row);
void put_row(Sqlite& database, const TrialRow& row);

/// What is wrong with an open file, a line each: pages, schema, rows, contents.
std::vector<std::string> problems_of(Sqlite& database);

/// Copies the rows of a damaged file that can be read and have the right checksum; how many.
std::int64_t salvage(Sqlite& damaged, Sqlite& fresh);

} // namespace egret::compiler
