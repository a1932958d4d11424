#include "formats/report_html.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <regex>

#include "formats/chart_axis.h"

namespace fourfold {
namespace {

int count(const std::string& text, const std::string& part) {
  int n = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

/// Every element that is opened is closed, in order.
void expect_balanced(const std::string& html) {
  std::vector<std::string> open;
  const std::regex tag("<(/?)([a-z0-9]+)[^>]*?(/?)>");
  for (std::sregex_iterator it(html.begin(), html.end(), tag), end; it != end; ++it) {
    const std::string name = (*it)[2];
    if (name == "meta" || (*it)[3] == "/") continue;
    if ((*it)[1] != "/") {
      open.push_back(name);
      continue;
    }
    ASSERT_FALSE(open.empty()) << name;
    ASSERT_EQ(open.back(), name);
    open.pop_back();
  }
  EXPECT_TRUE(open.empty());
}

std::vector<std::string> labels(double low, double high, bool logarithmic = false) {
  return make_axis(low, high, 6, logarithmic, /*tight=*/false).labels;
}

using Labels = std::vector<std::string>;

TEST(ReportTimeline, DrawsWhatLiesInIt) {
  ReportTimeline timeline;
  timeline.title = "a <step>";
  timeline.begin = 1;
  timeline.end = 2;
  timeline.kinds = {"computation", "communication"};
  timeline.tracks.push_back(
      {"main",
       {{0, 0.5, 0, "before"}, {0.5, 1.5, 0, "cut"}, {1.6, 1.7, 1, "in"}, {3, 4, 0, "after"}}});
  timeline.tracks.push_back({"lane", {}});
  for (int i = 0; i < 1000; ++i) {  // Too narrow to be seen apart.
    timeline.tracks[1].spans.push_back({1 + i * 1e-3, 1 + (i + 0.9) * 1e-3, 1, "many"});
  }
  Report report;
  report.sections.push_back({"Timeline", "", {timeline}});
  const std::string html = render_report(report);
  expect_balanced(html);
  EXPECT_EQ(count(html, "<title>before</title>"), 0);
  EXPECT_EQ(count(html, "<title>after</title>"), 0);
  EXPECT_EQ(count(html, "<title>cut</title>"), 1);
  EXPECT_EQ(count(html, "<title>in</title>"), 1);
  EXPECT_GT(count(html, "<title>many</title>"), 100);
  EXPECT_LE(count(html, "<title>many</title>"), 1000);
  EXPECT_NE(html.find("a &lt;step&gt;"), std::string::npos);
}

TEST(ChartAxis, MarksRoundPlaces) {
  EXPECT_EQ(labels(0, 10), (Labels{"0", "2", "4", "6", "8", "10"}));
  EXPECT_EQ(labels(0.02, 0.11), (Labels{"0.02", "0.04", "0.06", "0.08", "0.10", "0.12"}));
  EXPECT_EQ(labels(0, 14'000), (Labels{"0", "5k", "10k", "15k"}));
  EXPECT_EQ(labels(1e6, 2e6), (Labels{"1.0M", "1.2M", "1.4M", "1.6M", "1.8M", "2.0M"}));
  EXPECT_EQ(labels(-3, 3), (Labels{"-3", "-2", "-1", "0", "1", "2", "3"}));
  EXPECT_EQ(labels(0.05, 300, true), (Labels{"0.1", "1", "10", "100"}));
  EXPECT_EQ(labels(2.1, 2.9, true), (Labels{"2.2", "2.4", "2.6", "2.8"}));
  EXPECT_EQ(labels(1, 20, true), (Labels{"1", "2", "5", "10", "20"}));
}

TEST(ChartAxis, CoversAnyRange) {
  const double kValues[] = {0, 1, -1, 3.7, 1e-9, 1e9, 1e300, -1e300, 5e-324};
  for (const double low : kValues) {
    for (const double high : kValues) {
      if (low > high) continue;
      for (const bool tight : {true, false}) {
        const ChartAxis axis = make_axis(low, high, 6, false, tight);
        const double slack = 1e-8 * (axis.high - axis.low);
        EXPECT_LE(axis.low, low + slack);
        EXPECT_GE(axis.high, high - slack);
        EXPECT_LT(axis.low, axis.high);
        EXPECT_LE(axis.ticks.size(), 15u) << low << " " << high;
        EXPECT_EQ(axis.ticks.size(), axis.labels.size());
      }
    }
  }
  const ChartAxis axis = make_axis(2, 8, 6, true, false);
  EXPECT_DOUBLE_EQ(axis.position(2), 0);
  EXPECT_DOUBLE_EQ(axis.position(4), 0.5);
  EXPECT_DOUBLE_EQ(axis.position(8), 1);
}

TEST(Report, IsWholeEscapedAndSelfContained) {
  Report report;
  report.title = "a <b> & \"c\"";
  report.facts = {{"loss", "3.4"}};
  report.sections.push_back(
      {"One",
       "note",
       {ReportChart{.title = "t",
                    .x_label = "step",
                    .y_label = "loss",
                    .series = {{.name = "raw<1>", .x = {1, 2, 3}, .y = {3, 2, 1}, .faint = true},
                               {.name = "mean", .x = {1, 3}, .y = {3, 1}, .points = true}},
                    .marks = {{2, "resumed"}},
                    .levels = {{2.5, "baseline"}}},
        ReportTable{.title = "kv", .header = {}, .rows = {{"key", "a<b"}}},
        ReportTable{.title = "list", .header = {"a", "b"}, .rows = {{"1", "2"}}},
        ReportGrid{.title = "grid", .x = 2, .y = 3, .z = 2, .data = 2, .ranks = {}},
        ReportText{"bad \xff bytes\x01", true}}});
  const std::string html = render_report(report);
  expect_balanced(html);
  EXPECT_NE(html.find("<h1>a &lt;b&gt; &amp; &quot;c&quot;</h1>"), std::string::npos);
  EXPECT_NE(html.find("raw&lt;1&gt;"), std::string::npos);
  EXPECT_NE(html.find("<th>key</th><td>a&lt;b</td>"), std::string::npos);
  EXPECT_NE(html.find("bad \uFFFD bytes "), std::string::npos);
  EXPECT_EQ(count(html, "http"), 0);
  EXPECT_EQ(count(html, "<script"), 0);
  EXPECT_EQ(count(html, "class=\"cell"), 24);
  EXPECT_EQ(count(html, ">resumed<"), 1);
  EXPECT_EQ(count(html, ">baseline<"), 1);
}

TEST(Report, ChartsPlacePointsAndLeaveGaps) {
  const double nan = std::nan("");
  const ReportChart chart{
      .x_label = "x",
      .y_label = "y",
      .series = {{.name = "s", .x = {0, 1, 2, 3, 4}, .y = {0, 10, nan, 10, 0}}}};
  const std::string svg = render_chart(chart);
  // x from 64 to 740; y from 288 (0) to 16 (10).
  EXPECT_NE(svg.find("M64.0 288.0L233.0 16.0M571.0 16.0L740.0 288.0"), std::string::npos) << svg;
}

TEST(Report, LogChartsLeaveOutWhatHasNoLogarithm) {
  const ReportChart chart{.series = {{.name = "s", .x = {0, 1, 2, 3}, .y = {0, 1, 100, -1}}},
                          .log_y = true};
  EXPECT_NE(render_chart(chart).find("d=\"M64.0 288.0L740.0 16.0\""), std::string::npos)
      << render_chart(chart);
}

TEST(Report, EmptyOddAndHugeChartsAreDrawn) {
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_NE(render_chart({}).find("no data yet"), std::string::npos);
  EXPECT_NE(render_chart({.series = {{.name = "s", .x = {1, 2}, .y = {inf, inf}}}}).find("no data"),
            std::string::npos);
  EXPECT_EQ(count(render_chart({.series = {{.name = "s", .x = {5}, .y = {2}}}}), "<circle"), 1);
  EXPECT_EQ(render_chart({.series = {{.name = "s", .x = {5, 6, 7}, .y = {2}}}}).find("nan"),
            std::string::npos);
  ReportSeries long_one{.name = "s", .x = {}, .y = {}};
  for (int i = 0; i < 1'000'000; ++i) {
    long_one.x.push_back(i);
    long_one.y.push_back(i == 777'777 ? 50 : std::sin(i));
  }
  const std::string svg = render_chart({.series = {long_one}});
  EXPECT_LT(svg.size(), 40'000u);
  // The one peak survives the thinning: 50 of an axis from -10 to 50 is its top.
  EXPECT_EQ(count(svg, " 16.0L"), 1);
}

TEST(Report, GridsShowRanksInTheGivenOrder) {
  const std::string svg = render_grid({.x = 2, .y = 1, .z = 1, .data = 1, .ranks = {7, 5}});
  EXPECT_LT(svg.find("rank 7: x 0, y 0"), svg.find("rank 5: x 1, y 0"));
  const std::string large = render_grid({.x = 100, .y = 100, .z = 100, .data = 10});
  EXPECT_EQ(count(large, "class=\"cell"), 8 * 8 * 4 * 2);
  EXPECT_NE(large.find("x 8 of 100; y 8 of 100; z 4 of 100; data 2 of 10"), std::string::npos);
}

}  // namespace
}  // namespace fourfold
