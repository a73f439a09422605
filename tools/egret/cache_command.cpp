// egret cache: what searches and compilations have left on disk.
#include "commands.h"
#include "console.h"
#include "number_option.h"

#include "backend/all/backends.h"
#include "compiler/search/tuner.h"
#include "support/cache_folder.h"
#include "support/fail.h"
#include "support/output_file.h"
#include "support/printable.h"
#include "support/read_text.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

namespace egret::tool {

namespace {

using Json = nlohmann::ordered_json;
using compiler::TuningDatabase;

struct CacheOptions {
  std::string file; ///< of export and import
  std::int64_t keep_days = -1, most = -1, objects_mb = -1;
  bool stale = false, all = false, json = false;
};

std::filesystem::path folder() {
  auto found = cache_folder();
  if (!found)
    fail(ErrorKind::File, "cache: there is no cache folder: EGRET_CACHE is off, or neither "
                          "EGRET_CACHE, XDG_CACHE_HOME nor HOME names one");
  return *found;
}

// Machine code, by device.
struct Objects {
  std::string device;
  ObjectCache& cache;
};
std::vector<Objects> objects() {
  std::vector<Objects> all;
  for (const backend::Backend& backend : backend::backends().list())
    if (backend.cache)
      all.push_back({std::string(backend.name), backend.cache()});
  return all;
}

/// What is wrong with what is kept, a line each. Changes nothing.
std::vector<std::string> problems(TuningDatabase& database) {
  std::vector<std::string> lines = database.verify();
  for (const auto& [device, cache] : objects())
    for (std::string& line : cache.verify())
      lines.push_back(std::move(line));
  return lines;
}

void stats(const CacheOptions& options) {
  TuningDatabase database(folder(), TuningDatabase::Mode::Inspect);
  const auto wrong = problems(database);
  const auto s = database.stats(compiler::tuning_version());
  if (options.json) {
    Json json{{"file", s.file},           {"bytes", s.bytes},         {"choices", s.choices},
              {"stale", s.stale},         {"trials", s.trials},       {"rejected", s.rejected},
              {"oldest", s.oldest},       {"newest", s.newest},       {"readable", s.readable},
              {"problems", wrong.size()}, {"objects", Json::object()}};
    for (const auto& [device, cache] : objects()) {
      const ObjectCacheStats o = cache.stats();
      json["objects"][device] = Json{{"folder", cache.folder().string()},
                                     {"count", o.objects},
                                     {"bytes", o.bytes},
                                     {"limit", cache.limit()},
                                     {"stale", o.stale}};
    }
    fmt::print("{}\n", json.dump());
  } else {
    fmt::print(
        "{}: {}{}\n{} choices, {} of them of other versions\n{} trials, {} of them rejected\n",
        s.file, bytes_text(static_cast<double>(s.bytes)),
        s.bytes > 0 && !s.readable ? ", cannot be read" : "", s.choices, s.stale, s.trials,
        s.rejected);
    for (const auto& [device, cache] : objects()) {
      const ObjectCacheStats o = cache.stats();
      fmt::print("{}: {} of {}\n{} objects for {}, {} of them of other versions\n",
                 cache.folder().string(), bytes_text(static_cast<double>(o.bytes)),
                 bytes_text(static_cast<double>(cache.limit())), o.objects, device, o.stale);
    }
  }
  if (!wrong.empty())
    fail(ErrorKind::File, "cache stats: {} problems in {}; egret cache verify names them",
         wrong.size(), folder().string());
}

void prune(const CacheOptions& options) {
  compiler::PruneOptions how;
  if (options.keep_days >= 0)
    how.keep_days = options.keep_days;
  if (options.most >= 0)
    how.most = options.most;
  how.stale = options.stale;
  how.all = options.all;
  const bool choices = how.keep_days || how.most || how.stale || how.all;
  if (!choices && options.objects_mb < 0)
    throw UsageError("cache prune: say what leaves: --keep-days, --most, --objects-mb, --stale or "
                     "--all");
  TuningDatabase database(folder());
  const auto removed = choices ? database.prune(how, compiler::tuning_version()) : 0;
  const auto left = database.stats(compiler::tuning_version()).choices;
  std::int64_t objects_removed = 0, objects_left = 0;
  for (const auto& [device, cache] : objects()) {
    if (how.stale)
      objects_removed += cache.prune_stale();
    if (how.all || options.objects_mb >= 0)
      objects_removed +=
          cache.prune(how.all ? 0 : static_cast<std::uint64_t>(options.objects_mb) << 20);
    objects_left += cache.stats().objects;
  }
  if (options.json)
    fmt::print("{}\n", Json{{"removed", removed},
                            {"left", left},
                            {"objects_removed", objects_removed},
                            {"objects_left", objects_left}}
                           .dump());
  else
    fmt::print("{} choices removed, {} left\n{} objects removed, {} left\n", removed, left,
               objects_removed, objects_left);
}

void export_choices(const CacheOptions& options) {
  TuningDatabase database(folder(), TuningDatabase::Mode::Frozen);
  const std::string text = database.export_json() + "\n";
  if (options.file.empty())
    fmt::print("{}", text);
  else
    write_output("cache export", options.file, text);
}

void import_choices(const CacheOptions& options) {
  TuningDatabase database(folder());
  std::int64_t count = 0;
  try {
    count = database.import_json(read_text(options.file));
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::Parse)
      throw;
    fail(ErrorKind::Parse, "{}: {}", options.file, error.what());
  }
  if (!database.stats(compiler::tuning_version()).writable)
    fail(ErrorKind::File, "cache import: {} cannot be written to",
         TuningDatabase::file_in(folder()).string());
  if (options.json)
    fmt::print("{}\n", Json{{"imported", count}}.dump());
  else
    fmt::print("{} choices imported\n", count);
}

void verify(const CacheOptions& options) {
  TuningDatabase database(folder(), TuningDatabase::Mode::Inspect);
  const auto wrong = problems(database);
  constexpr auto kReplace = Json::error_handler_t::replace;
  if (options.json)
    fmt::print("{}\n",
               Json{{"ok", wrong.empty()}, {"problems", wrong}}.dump(-1, ' ', false, kReplace));
  else
    for (const std::string& line : wrong)
      fmt::print("{}\n", terminal_text(line));
  if (!wrong.empty())
    fail(ErrorKind::File, "cache verify: {} problems in {}", wrong.size(), folder().string());
  if (!options.json)
    fmt::print("{}: nothing is wrong\n", folder().string());
}

} // namespace

void add_cache_command(CLI::App& app) {
  auto options = std::make_shared<CacheOptions>();
  auto* cache = app.add_subcommand(
      "cache", "Look after what searches found and what was compiled (docs/tuning.md)");
  cache->require_subcommand(1);
  cache->footer("Choices are in tuning-2.db, machine code is in objects/, both in the folder that\n"
                "EGRET_CACHE names, or else in $XDG_CACHE_HOME/egret or ~/.cache/egret.");
  auto add = [&](const char* name, const char* what, void (*run)(const CacheOptions&)) {
    auto* command = cache->add_subcommand(name, what);
    command->add_flag("--json", options->json, "Print JSON");
    command->callback([options, run] { run(*options); });
    return command;
  };
  add("stats", "How much there is", stats);
  auto* pruning = add("prune", "Remove choices and machine code", prune);
  pruning->add_option("--keep-days", options->keep_days, "Choices not used for so many days")
      ->check(whole_within(0, 100000));
  pruning->add_option("--most", options->most, "All choices but so many, used last")
      ->check(whole_within(0, 1000000000));
  pruning
      ->add_option("--objects-mb", options->objects_mb,
                   "Machine code used longest ago, until so many MiB are left for each device")
      ->check(whole_within(0, 1000000));
  pruning->add_flag("--stale", options->stale, "Those of other versions of egret");
  pruning->add_flag("--all", options->all, "All");
  add("export", "Write choices as JSON", export_choices)
      ->add_option("file", options->file, "Where to; stdout without");
  add("import", "Read choices that export wrote", import_choices)
      ->add_option("file", options->file, "Where from")
      ->required()
      ->check(CLI::ExistingFile);
  add("verify", "Check every page, every entry and every object", verify);
}

} // namespace egret::tool
