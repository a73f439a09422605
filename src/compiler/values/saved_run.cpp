#include "compiler/values/saved_run.h"

#include "ir/text.h"
#include "support/checked.h"
#include "support/fail.h"
#include "support/output_file.h"
#include "support/path_status.h"
#include "support/printable.h"
#include "support/read_text.h"

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <system_error>
#include <utility>

namespace egret::compiler {

using backend::reference::Dims;
using backend::reference::HostArray;
using Json = nlohmann::ordered_json;

namespace {

constexpr const char* kFormat = "egret-values";

std::filesystem::path elements_path(const std::filesystem::path& folder, ir::NodeId node) {
  return folder / fmt::format("{}.bin", node);
}

std::string text_of_line(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

/// A line of the file, whose fields are not what they are until they were looked at.
class LineReader {
public:
  LineReader(const std::filesystem::path& path, std::size_t line, std::string_view text)
      : path_(path), line_(line) {
    json_ = Json::parse(text, nullptr, false);
    if (!json_.is_object())
      damaged("no JSON object");
  }

  template <class... Args>
  [[noreturn]] void damaged(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ErrorKind::File, "values: {}: line {}: {}", path_.string(), line_,
         printable(fmt::format(format, std::forward<Args>(args)...)));
  }
  const Json& field(const char* name) const {
    const auto found = json_.find(name);
    if (found == json_.end())
      damaged("there is no field '{}'", name);
    return *found;
  }
  std::string text(const char* name) const {
    if (!field(name).is_string())
      damaged("'{}' is no text", name);
    return field(name).get<std::string>();
  }
  bool flag(const char* name) const {
    if (!field(name).is_boolean())
      damaged("'{}' is neither true nor false", name);
    return field(name).get<bool>();
  }
  std::int64_t whole(const char* name, std::int64_t least, std::int64_t most) const {
    return whole_of(field(name), name, least, most);
  }
  double number(const char* name) const {
    if (!field(name).is_number())
      damaged("'{}' is no number", name);
    return field(name).get<double>();
  }
  std::vector<std::int64_t> wholes(const char* name, std::int64_t least, std::int64_t most) const {
    std::vector<std::int64_t> values;
    for (const Json& value : list(name))
      values.push_back(whole_of(value, name, least, most));
    return values;
  }
  std::vector<std::string> texts(const char* name) const {
    std::vector<std::string> values;
    for (const Json& value : list(name)) {
      if (!value.is_string())
        damaged("'{}' holds what is no text", name);
      values.push_back(value.get<std::string>());
    }
    return values;
  }
  std::vector<ir::NodeId> nodes(const char* name, const ir::Graph& graph) const {
    std::vector<ir::NodeId> ids;
    for (const std::int64_t id : wholes(name, 0, static_cast<std::int64_t>(graph.size()) - 1))
      ids.push_back(static_cast<ir::NodeId>(id));
    return ids;
  }
  ir::NodeId node(const ir::Graph& graph) const {
    return static_cast<ir::NodeId>(whole("node", 0, static_cast<std::int64_t>(graph.size()) - 1));
  }

private:
  const Json& list(const char* name) const {
    if (!field(name).is_array())
      damaged("'{}' is no list", name);
    return field(name);
  }
  std::int64_t whole_of(const Json& value, const char* name, std::int64_t least,
                        std::int64_t most) const {
    if (!value.is_number_integer() || value.get<std::int64_t>() < least ||
        value.get<std::int64_t>() > most)
      damaged("'{}' is no whole number from {} to {}", name, least, most);
    return value.get<std::int64_t>();
  }

  const std::filesystem::path& path_;
  std::size_t line_;
  Json json_;
};

Json value_json(ir::NodeId node, const SavedValue& value) {
  const ValueSummary& s = value.summary;
  return {{"event", "value"},       {"node", node},
          {"launch", value.launch}, {"dtype", name_of(value.dtype)},
          {"dims", value.dims},     {"whole", value.whole},
          {"nan", s.nan},           {"infinite", s.infinite},
          {"min", s.least},         {"max", s.most},
          {"mean", s.mean},         {"rms", s.rms},
          {"hash", s.hash.hex()}};
}

Hash128 hash_named(const LineReader& line) {
  const std::string text = line.text("hash");
  const bool digits = text.size() == 32 && std::ranges::all_of(text, [](char c) {
                        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
                      });
  if (!digits)
    line.damaged("'hash' is not 32 hexadecimal digits");
  return {std::stoull(text.substr(0, 16), nullptr, 16), std::stoull(text.substr(16), nullptr, 16)};
}

SavedValue read_value(const LineReader& line, const SavedRun& run, ir::NodeId node) {
  constexpr std::int64_t kMost = std::int64_t{1} << 60;
  SavedValue value;
  value.launch = static_cast<int>(
      line.whole("launch", -1, static_cast<std::int64_t>(run.launches.size()) - 1));
  try {
    value.dtype = dtype_named(line.text("dtype"));
  } catch (const Error& error) {
    line.damaged("{}", error.what());
  }
  value.dims = line.wholes("dims", 0, kMost);
  const ir::Node& known = run.graph[node];
  if (value.dtype != known.dtype || value.dims.size() != known.shape.size())
    line.damaged("%{} is {} in the graph", node, ir::type_text(known));
  std::int64_t elements = 1;
  for (const std::int64_t dim : value.dims)
    if (__builtin_mul_overflow(elements, dim, &elements) || elements > kMost)
      line.damaged("'dims' are of too many elements");
  for (std::size_t i = 0; i < value.dims.size(); ++i)
    if (const auto dim = known.shape[i].constant(); dim && *dim != value.dims[i])
      line.damaged("%{} is {} in the graph", node, ir::type_text(known));
  ValueSummary& s = value.summary;
  s.elements = elements;
  s.nan = line.whole("nan", 0, elements);
  s.infinite = line.whole("infinite", 0, elements - s.nan);
  s.least = line.number("min");
  s.most = line.number("max");
  s.mean = line.number("mean");
  s.rms = line.number("rms");
  s.hash = hash_named(line);
  value.whole = line.flag("whole");
  return value;
}

void read_run(const LineReader& line, SavedRun& run) {
  if (line.text("event") != "run" || line.text("format") != kFormat)
    line.damaged("this is no file of values");
  if (const auto version = line.whole("version", 0, 1 << 30); version != SavedRun::kVersion)
    line.damaged("version {}; this egret reads version {}", version, SavedRun::kVersion);
  run.identity = line.text("identity");
  run.program = line.text("program");
  run.file = line.text("file");
  run.device = line.text("device");
  run.effort = line.text("effort");
  run.fuse = line.flag("fuse");
  try {
    run.graph = ir::parse_graph(line.text("graph"));
  } catch (const Error& error) {
    line.damaged("{}", error.what());
  }
  run.origins.resize(run.graph.size());
}

/// Whether there is a value of each input and of all that launches store.
bool has_every_value(const SavedRun& run) {
  const auto there = [&](ir::NodeId node) { return run.values.contains(node); };
  return std::ranges::all_of(run.graph.inputs(), there) &&
         std::ranges::all_of(run.launches, [&](const SavedLaunch& launch) {
           return std::ranges::all_of(launch.outputs, there);
         });
}

} // namespace

std::string RunDescription::node_text(ir::NodeId node) const {
  const std::vector<int>& lines = origins[node].lines;
  std::string text = ir::node_text(graph, node);
  if (!lines.empty())
    text += fmt::format(", line{} {}{}{}", lines.size() == 1 ? "" : "s", fmt::join(lines, ", "),
                        file.empty() ? "" : " of ", file);
  return text;
}

HostArray SavedRun::load(ir::NodeId node) const {
  const SavedValue& value = values.at(node);
  ensure(value.whole, "values: %{} is not kept whole", node);
  const std::filesystem::path path = elements_path(folder, node);
  const auto bytes = static_cast<std::uint64_t>(value.summary.elements) * size_of(value.dtype);
  std::error_code error;
  if (const auto there = std::filesystem::file_size(path, error); error || there != bytes)
    fail(ErrorKind::File, "values: {}: {}", path.string(),
         error ? error.message() : fmt::format("{} bytes, not {}", there, bytes));
  HostArray array(value.dtype, value.dims);
  std::ifstream in(path, std::ios::binary);
  in.read(reinterpret_cast<char*>(array.bytes.data()), static_cast<std::streamsize>(bytes));
  if (!in)
    fail(ErrorKind::File, "values: {}: cannot be read", path.string());
  if (summary_of(array).hash != value.summary.hash)
    fail(ErrorKind::File, "values: {}: the bytes are not those that were written", path.string());
  return array;
}

SavedRun read_saved_run(const std::filesystem::path& folder) {
  SavedRun run;
  run.folder = folder;
  const std::filesystem::path path = folder / SavedRunWriter::kFile;
  const std::string text = read_text(path);
  std::size_t number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    if (end == std::string::npos)
      break; // cut short while it was written
    const LineReader line(path, ++number, std::string_view(text).substr(at, end - at));
    at = end + 1;
    const std::string event = line.text("event");
    if (number == 1) {
      read_run(line, run);
    } else if (event == "node") {
      NodeOrigin& origin = run.origins[line.node(run.graph)];
      for (const std::int64_t l : line.wholes("lines", 1, 1 << 30))
        origin.lines.push_back(static_cast<int>(l));
      origin.rules = line.texts("rules");
      origin.pass = line.text("pass");
    } else if (event == "launch") {
      run.launches.push_back({line.text("kernel"), line.text("schedule"),
                              line.nodes("operands", run.graph), line.nodes("outputs", run.graph)});
    } else if (event == "value") {
      const ir::NodeId node = line.node(run.graph);
      if (!run.values.emplace(node, read_value(line, run, node)).second)
        line.damaged("%{} has a value already", node);
    } else if (event == "end") {
      run.complete = has_every_value(run);
    }
  }
  if (number == 0)
    fail(ErrorKind::File, "values: {}: this is no file of values", path.string());
  return run;
}

// Writing.

void make_run_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    fail(ErrorKind::File, "values: {}: {}", folder.string(), error.message());
  const std::filesystem::path journal = folder / SavedRunWriter::kFile;
  output_target("values", journal);
  // Permissions do not say all: a folder of a file system that takes no files is seen so.
  if (const TemporaryFile attempt(journal, 0600); attempt.fd() < 0)
    fail(ErrorKind::File, "values: {}: no file can be made there: {}", folder.string(),
         std::strerror(errno));
}

SavedRunWriter::SavedRunWriter(std::filesystem::path folder, RunDescription run,
                               std::int64_t most_bytes)
    : bytes_left_(most_bytes) {
  static_cast<RunDescription&>(run_) = std::move(run);
  run_.folder = std::move(folder);
  make_run_folder(run_.folder);
  if (path_exists(run_.folder / kFile))
    resume(read_saved_run(run_.folder));
  else
    begin();
}

void SavedRunWriter::begin() {
  std::string text = text_of_line({{"event", "run"},
                                   {"format", kFormat},
                                   {"version", SavedRun::kVersion},
                                   {"identity", run_.identity},
                                   {"program", run_.program},
                                   {"file", run_.file},
                                   {"device", run_.device},
                                   {"effort", run_.effort},
                                   {"fuse", run_.fuse},
                                   {"graph", ir::print(run_.graph)}});
  for (ir::NodeId node = 0; node < run_.graph.size(); ++node) {
    const NodeOrigin& origin = run_.origins[node];
    if (!origin.lines.empty() || !origin.pass.empty())
      text += text_of_line({{"event", "node"},
                            {"node", node},
                            {"lines", origin.lines},
                            {"rules", origin.rules},
                            {"pass", origin.pass}});
  }
  for (const SavedLaunch& launch : run_.launches)
    text += text_of_line({{"event", "launch"},
                          {"kernel", launch.kernel},
                          {"schedule", launch.schedule},
                          {"operands", launch.operands},
                          {"outputs", launch.outputs}});
  write_output("values", run_.folder / kFile, text);
  journal_.open(run_.folder / kFile, std::ios::app | std::ios::binary);
}

void SavedRunWriter::resume(SavedRun before) {
  if (before.identity != run_.identity)
    fail(ErrorKind::State, "values: {} holds another run; remove it or name another folder",
         run_.folder.string());
  // Again from the beginning, without what was cut short or damaged; files of values stay.
  begin();
  for (auto& [node, value] : before.values) {
    if (value.whole)
      try {
        run_.values[node] = value;
        run_.load(node);
      } catch (const Error&) {
        run_.values.erase(node);
        continue;
      }
    if (value.whole)
      bytes_left_ -= value.summary.elements * static_cast<std::int64_t>(size_of(value.dtype));
    run_.values.insert_or_assign(node, value);
    line(text_of_line(value_json(node, value)));
  }
}

std::optional<HostArray> SavedRunWriter::kept(ir::NodeId node) const {
  const auto found = run_.values.find(node);
  if (found == run_.values.end() || !found->second.whole)
    return std::nullopt;
  return run_.load(node);
}

void SavedRunWriter::add(ir::NodeId node, int launch, const HostArray& array) {
  SavedValue value{launch, array.dtype, array.dims, summary_of(array), false};
  const auto bytes = static_cast<std::int64_t>(array.bytes.size());
  if (bytes <= bytes_left_) {
    OutputFile file("values", elements_path(run_.folder, node));
    file.write(std::span(array.bytes));
    file.commit();
    bytes_left_ -= bytes;
    value.whole = true;
  }
  line(text_of_line(value_json(node, value)));
  run_.values.insert_or_assign(node, std::move(value));
}

void SavedRunWriter::finish() {
  line(text_of_line({{"event", "end"}}));
  run_.complete = true;
}

void SavedRunWriter::line(const std::string& text) {
  journal_ << text << std::flush;
  if (!journal_)
    fail(ErrorKind::File, "values: {}: cannot be written: {}", (run_.folder / kFile).string(),
         std::strerror(errno));
}

} // namespace egret::compiler
