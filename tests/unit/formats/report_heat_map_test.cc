#include <gtest/gtest.h>

#include <string>

#include "formats/report_html.h"

namespace fourfold {
namespace {

int count(const std::string& text, const std::string& part) {
  int n = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

ReportHeatMap::Panel panel(std::size_t steps, std::size_t rows, double value, double curve) {
  ReportHeatMap::Panel p;
  for (std::size_t i = 1; i <= steps; ++i) {
    p.x.push_back(static_cast<double>(i));
    p.columns.emplace_back(rows, value);
    p.curve.push_back(curve);
  }
  return p;
}

TEST(ReportHeatMap, ColoursEachCellByHowEvenItIs) {
  ReportHeatMap map;
  map.title = "a <b>";
  map.panels.push_back(panel(3, 2, 1, 1.5));
  map.panels[0].name = "layer <0>";
  map.panels[0].columns[1] = {0, 2.5};
  map.panels[0].columns[2] = {0.3, 2.5};
  const std::string svg = render_heat_map(map);
  // By colour the runs of equal cells: column, row, length.
  EXPECT_NE(svg.find("<path d=\"M0 0h1M0 1h1\" class=\"cells h5\"/>"), std::string::npos) << svg;
  EXPECT_NE(svg.find("<path d=\"M1 0h1\" class=\"cells h0\"/>"), std::string::npos);
  EXPECT_NE(svg.find("<path d=\"M2 0h1\" class=\"cells h2\"/>"), std::string::npos);
  EXPECT_NE(svg.find("<path d=\"M1 1h2\" class=\"cells h8\"/>"), std::string::npos);
  EXPECT_EQ(count(svg, "class=\"cells"), 4);
  EXPECT_NE(svg.find("layer &lt;0&gt;"), std::string::npos);
  EXPECT_EQ(count(svg, "class=\"note"), 0);
}

TEST(ReportHeatMap, MeansWhatFallsIntoOneColumn) {
  ReportHeatMap map;
  map.panels.push_back(panel(100'000, 1, 0, 1));
  for (std::size_t i = 0; i < 100'000; i += 2) map.panels[0].columns[i] = {2};
  const std::string svg = render_heat_map(map);
  EXPECT_EQ(count(svg, "class=\"cells"), 1);
  EXPECT_EQ(count(svg, "class=\"cells h5\""), 1);  // Of 0 and 2 the mean, which is even.
}

TEST(ReportHeatMap, ARecordStandsForTheStepsBeforeIt) {
  ReportHeatMap map;
  map.panels.push_back(panel(4, 1, 1, 1));
  map.panels[0].x = {10, 20, 30, 31};
  map.panels[0].columns = {{0.1}, {1}, {3}, {3}};
  const std::string svg = render_heat_map(map);
  EXPECT_NE(svg.find("<path d=\"M0 0h2\" class=\"cells h1\"/>"), std::string::npos) << svg;
}

TEST(ReportHeatMap, LargeOnesAreBoundedAndSaySo) {
  ReportHeatMap map;
  for (int layer = 0; layer < 60; ++layer) {
    map.panels.push_back(panel(500, 512, 1, layer));
    map.panels.back().name = "layer " + std::to_string(layer);
    for (std::size_t i = 0; i < 500; ++i) {  // No two neighbours alike.
      for (std::size_t r = 0; r < 512; ++r) map.panels.back().columns[i][r] = (i / 9 + r / 4) % 5;
    }
  }
  const std::string svg = render_heat_map(map);
  EXPECT_LT(svg.size(), 2'000'000u);
  EXPECT_EQ(svg.find(">layer 35<"), std::string::npos);
  EXPECT_EQ(count(svg, "class=\"strong\">layer "), 24);
  EXPECT_NE(svg.find("The 24 of 60 with the highest curves"), std::string::npos);
  EXPECT_NE(svg.find("128 rows stand for 512"), std::string::npos);
}

TEST(ReportHeatMap, MergedRowsShowTheLeastEven) {
  ReportHeatMap map;
  map.panels.push_back(panel(1, 256, 1, 1));
  map.panels[0].columns[0][7] = 5;
  map.panels[0].columns[0][200] = 0;
  const std::string svg = render_heat_map(map);
  EXPECT_NE(svg.find("<path d=\"M0 3h1\" class=\"cells h9\"/>"), std::string::npos);
  EXPECT_NE(svg.find("<path d=\"M0 100h1\" class=\"cells h0\"/>"), std::string::npos);
}

TEST(ReportHeatMap, EmptyAndOddOnesAreDrawn) {
  EXPECT_NE(render_heat_map({}).find("no data yet"), std::string::npos);
  ReportHeatMap map;
  map.panels.resize(2);
  map.panels[1] = panel(1, 0, 1, 0);
  map.panels[1].x = {0};
  const std::string svg = render_heat_map(map);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
}

}  // namespace
}  // namespace fourfold
