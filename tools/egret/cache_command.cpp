// egret cache: what searches have left on disk.
#include "commands.h"
#include "console.h"
#include "graph_file.h"

#include "compiler/search/tuner.h"
#include "support/cache_folder.h"
#include "support/fail.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

namespace egret::tool {

namespace {

using Json = nlohmann::ordered_json;
using compiler::TuningDatabase;

struct CacheOptions {
  std::string file; ///< of export and import
  std::int64_t keep_days = -1, most = -1;
  bool stale = false, all = false, json = false;
};

std::filesystem::path folder() {
  auto found = cache_folder();
  if (!found)
    fail(ErrorKind::File, "cache: there is no cache folder: EGRET_CACHE is off, or neither "
                          "EGRET_CACHE, XDG_CACHE_HOME nor HOME names one");
  return *found;
}

void stats(const CacheOptions& options) {
  TuningDatabase database(folder());
  const auto s = database.stats(compiler::tuning_version());
  if (options.json)
    fmt::print("{}\n", Json{{"file", s.file},
                            {"bytes", s.bytes},
                            {"choices", s.choices},
                            {"stale", s.stale},
                            {"trials", s.trials},
                            {"rejected", s.rejected},
                            {"oldest", s.oldest},
                            {"newest", s.newest},
                            {"readable", s.readable},
                            {"writable", s.writable}}
                           .dump());
  else
    fmt::print(
        "{}: {}{}\n{} choices, {} of them of other versions\n{} trials, {} of them rejected\n",
        s.file, bytes_text(static_cast<double>(s.bytes)),
        !s.readable   ? ", cannot be read"
        : !s.writable ? ", cannot be written to"
                      : "",
        s.choices, s.stale, s.trials, s.rejected);
}

void prune(const CacheOptions& options) {
  compiler::PruneOptions how;
  if (options.keep_days >= 0)
    how.keep_days = options.keep_days;
  if (options.most >= 0)
    how.most = options.most;
  how.stale = options.stale;
  how.all = options.all;
  if (!how.keep_days && !how.most && !how.stale && !how.all)
    throw UsageError("cache prune: say what leaves: --keep-days, --most, --stale or --all");
  TuningDatabase database(folder());
  const auto removed = database.prune(how, compiler::tuning_version());
  const auto left = database.stats(compiler::tuning_version()).choices;
  if (options.json)
    fmt::print("{}\n", Json{{"removed", removed}, {"left", left}}.dump());
  else
    fmt::print("{} choices removed, {} left\n", removed, left);
}

void export_choices(const CacheOptions& options) {
  TuningDatabase database(folder(), TuningDatabase::Mode::Frozen);
  const std::string text = database.export_json() + "\n";
  if (options.file.empty())
    fmt::print("{}", text);
  else
    write_file(options.file, text);
}

void import_choices(const CacheOptions& options) {
  TuningDatabase database(folder());
  const std::string text = text_of_file(options.file);
  const auto count = database.import_json(text);
  if (!database.stats(compiler::tuning_version()).writable)
    fail(ErrorKind::File, "cache import: {} cannot be written to",
         TuningDatabase::file_in(folder()).string());
  if (options.json)
    fmt::print("{}\n", Json{{"imported", count}}.dump());
  else
    fmt::print("{} choices imported\n", count);
}

void verify(const CacheOptions& options) {
  TuningDatabase database(folder(), TuningDatabase::Mode::Frozen);
  const auto problems = database.verify();
  if (options.json)
    fmt::print("{}\n", Json{{"ok", problems.empty()}, {"problems", problems}}.dump());
  else
    for (const std::string& line : problems)
      fmt::print("{}\n", line);
  if (!problems.empty())
    fail(ErrorKind::File, "cache verify: {} problems in {}", problems.size(),
         TuningDatabase::file_in(folder()).string());
  if (!options.json)
    fmt::print("{}: nothing is wrong\n", TuningDatabase::file_in(folder()).string());
}

} // namespace

void add_cache_command(CLI::App& app) {
  auto options = std::make_shared<CacheOptions>();
  auto* cache = app.add_subcommand("cache", "Look after what searches have found (docs/tuning.md)");
  cache->require_subcommand(1);
  cache->footer("The file is tuning-1.db in the folder that EGRET_CACHE names, or else in\n"
                "$XDG_CACHE_HOME/egret or ~/.cache/egret.");
  auto add = [&](const char* name, const char* what, void (*run)(const CacheOptions&)) {
    auto* command = cache->add_subcommand(name, what);
    command->add_flag("--json", options->json, "Print JSON");
    command->callback([options, run] { run(*options); });
    return command;
  };
  add("stats", "How much there is", stats);
  auto* pruning = add("prune", "Remove choices", prune);
  pruning->add_option("--keep-days", options->keep_days, "Those not used for so many days")
      ->check(CLI::Range(0, 100000));
  pruning->add_option("--most", options->most, "All but so many, used last")
      ->check(CLI::Range(0, 1000000000));
  pruning->add_flag("--stale", options->stale, "Those of other versions of egret");
  pruning->add_flag("--all", options->all, "All");
  add("export", "Write choices as JSON", export_choices)
      ->add_option("file", options->file, "Where to; stdout without");
  add("import", "Read choices that export wrote", import_choices)
      ->add_option("file", options->file, "Where from")
      ->required()
      ->check(CLI::ExistingFile);
  add("verify", "Check every page and every entry", verify);
}

} // namespace egret::tool
