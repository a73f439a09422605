// Graphs of a record as pictures and data.
#include "view/drawing.h"

#include "egret/error.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <regex>
#include <set>

namespace egret::view {
namespace {

using nlohmann::json;

constexpr const char* kRecord = R"record({"event":"record","format":"egret-record","version":1}
{"event":"program","program":0,"device":"cpu","effort":"quick","begin":0}
{"event":"node","program":0,"node":0,"op":"input","type":"f32[4]","operands":[],"name":"<script>\"&\u0007"}
{"event":"node","program":0,"node":1,"op":"exp","type":"f32[4]","operands":[0]}
{"event":"node","program":0,"node":2,"op":"mul","type":"f32[4]","operands":[1,1]}
{"event":"node","program":0,"node":3,"op":"sum","type":"f32","operands":[2],"attrs":"axes=[0]"}
{"event":"graph","program":0,"graph":0,"nodes":[0,1,2,3],"outputs":[3]}
{"event":"egraph","program":0,"graph":0,"extracted":0,"rules":["twice"],"steps":[{"round":0,"group":""},{"round":1,"group":"a"}],"enodes":[{"op":"input","operands":[],"class":0,"step":0,"cost":16,"chosen":true},{"op":"exp","operands":[0],"class":1,"step":0,"cost":20,"chosen":true},{"op":"exp","operands":[5],"class":4,"step":1,"rule":0,"cost":30},{"op":"view","operands":[1],"class":5,"step":1,"rule":0,"cost":1}],"joins":[{"class":4,"into":1,"step":1,"rule":0},{"class":5,"into":1,"step":1}],"types":[[0,"f32[4]"],[1,"f32[4]"]],"classes":[[0,0],[3,1]],"left_out":0}
{"event":"kernel","program":0,"kernel":0,"name":"k","form":"reduce","schedule":"x","region":"","tree":"k = loops @tree=for(0,4,1,serial,acc(0,body(0),body(1)))","loops":""}
{"event":"plan","program":0,"graph":0,"arena_bytes":64,"liveness_bound_bytes":64,"slots":[{"kind":"input","type":"f32[4]","bytes":16,"first_step":0,"last_step":0,"number":0},{"kind":"output","type":"f32","bytes":4,"first_step":0,"last_step":0,"number":0}],"steps":[{"kind":"launch","kernel":0,"nodes":[1,2,3],"reads":[0],"writes":[1],"workspaces":[]}]}
{"event":"report","program":0,"end":1,"report":{"kernels":[{"name":"k","nodes":[1,2,3],"bytes_read":16,"bytes_written":4}]}}
{"event":"end","begin":1}
)record";

Drawing draw(std::string_view what, const std::string& record = kRecord, int program = 0) {
  return drawing_of_record("r.jsonl", record, what, program);
}

std::string message_of(std::string_view what, const std::string& record = kRecord,
                       int program = 0) {
  try {
    draw(what, record, program);
  } catch (const Error& error) {
    return error.what();
  }
  return "drawn";
}

TEST(Drawings, OfAGraphHaveItsNodesEdgesAndKernels) {
  const json graph = json::parse(json_of(draw("graph")));
  ASSERT_EQ(graph["nodes"].size(), 4u);
  EXPECT_EQ(graph["nodes"][3]["lines"], json::array({"sum axes=[0]", "f32"}));
  EXPECT_EQ(graph["nodes"][3]["group"], "launch 0, k");
  EXPECT_FALSE(graph["nodes"][0].contains("group"));
  EXPECT_EQ(graph["edges"], json::parse(R"([["%0","%1"],["%1","%2"],["%1","%2"],["%2","%3"]])"));
  EXPECT_EQ(json_of(draw("graph:0")), json_of(draw("graph")));
}

TEST(Drawings, OfLaunchesHaveTheMemoryBetweenThem) {
  const Drawing drawing = draw("launches");
  ASSERT_EQ(drawing.nodes.size(), 3u);
  EXPECT_EQ(drawing.nodes[1].lines, (std::vector<std::string>{"0 k", "reads 16 B, writes 4 B"}));
  EXPECT_EQ(drawing.nodes[1].reads, (std::vector<std::size_t>{0}));
  EXPECT_EQ(drawing.nodes[2].reads, (std::vector<std::size_t>{1}));
}

TEST(Drawings, OfAScheduleTreeHaveItsParts) {
  const Drawing drawing = draw("tree:0");
  ASSERT_EQ(drawing.nodes.size(), 4u);
  EXPECT_EQ(drawing.nodes[0].lines[0], "for 0 4 1 serial");
  EXPECT_EQ(drawing.nodes[1].lines[0], "acc 0");
  EXPECT_EQ(drawing.nodes[3].lines[0], "body 1");
  EXPECT_EQ(drawing.nodes[3].reads, (std::vector<std::size_t>{1}));
}

TEST(Drawings, OfAnEGraphHaveItsClassesAsTheyAreInTheEnd) {
  const Drawing drawing = draw("egraph");
  ASSERT_EQ(drawing.nodes.size(), 2u);
  EXPECT_EQ(drawing.nodes[1].lines,
            (std::vector<std::string>{"class 1  f32[4]", "* exp  c0", "  exp  c1  by twice",
                                      "  view  c1  by twice"}));
  const std::string svg = svg_of(drawing); // a class that reads itself
  EXPECT_NE(svg.find("view"), std::string::npos);
}

TEST(Drawings, OfAnEGraphAreInTheFormOfEgraphSerialize) {
  const json egraph = json::parse(serialized_egraph("r.jsonl", kRecord, 0));
  EXPECT_EQ(egraph["root_eclasses"], json::array({"1"}));
  EXPECT_EQ(egraph["class_data"]["1"]["type"], "f32[4]");
  ASSERT_EQ(egraph["nodes"].size(), 4u);
  for (const auto& [name, node] : egraph["nodes"].items()) {
    EXPECT_TRUE(node["cost"].is_number() && node["eclass"].is_string()) << name;
    for (const std::string child : node["children"])
      EXPECT_TRUE(egraph["nodes"].contains(child)) << child;
  }
}

TEST(Drawings, EscapeWhatNamesHold) {
  const std::string svg = svg_of(draw("graph")), dot = dot_of(draw("graph"));
  EXPECT_EQ(svg.find("<script>"), std::string::npos);
  EXPECT_NE(svg.find("&lt;script&gt;&quot;&amp; "), std::string::npos) << svg;
  EXPECT_EQ(svg.find('\a'), std::string::npos);
  EXPECT_NE(dot.find("<script>\\\"& "), std::string::npos) << dot;
}

/// Of its boxes: left, top, right, bottom.
std::vector<std::array<double, 4>> boxes_of(const std::string& svg) {
  std::vector<std::array<double, 4>> boxes;
  const std::regex box("<rect x=\"([-0-9.]+)\" y=\"([-0-9.]+)\" width=\"([0-9.]+)\" "
                       "height=\"([0-9.]+)\"");
  for (std::sregex_iterator at(svg.begin(), svg.end(), box), end; at != end; ++at) {
    const double x = std::stod((*at)[1]), y = std::stod((*at)[2]);
    boxes.push_back({x, y, x + std::stod((*at)[3]), y + std::stod((*at)[4])});
  }
  return boxes;
}

TEST(Drawings, OfRandomGraphsHaveBoxesThatDoNotOverlapAndEdgesDownwards) {
  std::uint32_t state = 7;
  const auto random = [&](std::size_t below) {
    state = state * 1664525u + 1013904223u;
    return static_cast<std::size_t>(state >> 8) % below;
  };
  for (int round = 0; round < 20; ++round) {
    Drawing drawing{"random", {}};
    for (std::size_t i = 0; i < 60; ++i) {
      DrawnNode node{
          fmt::format("n{}", i), {std::string(1 + random(30), 'x'), "y"}, {}, "", 0, false};
      for (std::size_t k = 0; i > 0 && k < random(4); ++k)
        node.reads.push_back(random(i));
      drawing.nodes.push_back(node);
    }
    const auto boxes = boxes_of(svg_of(drawing));
    ASSERT_EQ(boxes.size(), 60u);
    for (std::size_t i = 0; i < boxes.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j)
        EXPECT_TRUE(boxes[i][2] <= boxes[j][0] || boxes[j][2] <= boxes[i][0] ||
                    boxes[i][3] <= boxes[j][1] || boxes[j][3] <= boxes[i][1])
            << i << " over " << j;
      for (const std::size_t read : drawing.nodes[i].reads)
        EXPECT_LT(boxes[read][3], boxes[i][1]);
    }
  }
}

TEST(Drawings, OfWhatIsNotThereAreRefusedByName) {
  EXPECT_EQ(message_of("graph:7"), "r.jsonl: the program has no graph 7; it has 1");
  EXPECT_EQ(message_of("tree:7"), "r.jsonl: the program has no kernel 7; it has 1");
  EXPECT_EQ(message_of("graph:x"), "r.jsonl: graph:x ends with no number");
  EXPECT_EQ(message_of("graph:"), "r.jsonl: graph: ends with no number");
  EXPECT_EQ(message_of("pie"), "r.jsonl: pie is none of graph, graph:N, launches, egraph, tree:N");
  EXPECT_EQ(message_of("graph", kRecord, 3), "r.jsonl: the record has no program 3");
  EXPECT_EQ(message_of("graph", ""), "r.jsonl: no record of egret: it is empty");
  EXPECT_EQ(message_of("graph", "{}\n"),
            "r.jsonl: no record of egret: its first line is not that of one");
}

TEST(Drawings, OfDamagedRecordsAreRefused) {
  const std::string record = kRecord;
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = record;
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  };
  const std::string unsound = "r.jsonl: no sound record: ";
  EXPECT_EQ(message_of("graph", changed("\"operands\":[2]", "\"operands\":[9]")),
            unsound + "a number refers to nothing");
  EXPECT_TRUE(
      message_of("graph", changed("\"operands\":[2]", "\"operands\":7")).starts_with(unsound));
  EXPECT_EQ(message_of("graph", record + "{\"program\":0,\"event\":7}\n"),
            fmt::format("{}line {}: type must be string, but is number", unsound,
                        std::count(record.begin(), record.end(), '\n') + 1));
  EXPECT_EQ(message_of("launches", changed("\"reads\":[0]", "\"reads\":\"x\"")).find("json."),
            std::string::npos);
  EXPECT_TRUE(
      message_of("graph", changed("\"op\":\"exp\",\"type\"", "\"type\"")).starts_with(unsound));
  EXPECT_TRUE(
      message_of("launches", changed("\"reads\":[0]", "\"reads\":\"x\"")).starts_with(unsound));
  EXPECT_EQ(message_of("egraph", changed("\"class\":4,\"into\":1", "\"class\":1,\"into\":4")),
            "r.jsonl: a class is joined to a newer one");
  for (std::size_t cut = 60; cut < record.size(); cut += 37) // refused or drawn, never more
    message_of(cut % 2 ? "graph" : "launches", record.substr(0, cut));
}

TEST(Drawings, TooLargeForAPictureAreRefused) {
  Drawing drawing{"graph 0", std::vector<DrawnNode>(kMostDrawnNodes + 1)};
  try {
    svg_of(drawing);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "graph 0 has 20001 nodes, too many for a picture (20000 at the "
                               "most): draw `launches`, or write .dot or .json");
  }
}

} // namespace
} // namespace egret::view
