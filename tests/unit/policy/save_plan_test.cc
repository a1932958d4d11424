#include "policy/save_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace fourfold {
namespace {

/// Plans of all holders of the same items.
std::vector<std::vector<SavePiece>> plans(std::vector<SaveItem> items, int replicas) {
  std::vector<std::vector<SavePiece>> all;
  for (int r = 0; r < replicas; ++r) {
    for (SaveItem& item : items) {
      item.replica = r;
      item.replicas = replicas;
    }
    all.push_back(plan_save(items));
  }
  return all;
}

std::int64_t bytes_of(const std::vector<SavePiece>& pieces, const std::vector<SaveItem>& items) {
  std::int64_t bytes = 0;
  for (const SavePiece& p : pieces) bytes += p.region.elements() * items[p.item].element_size;
  return bytes;
}

std::vector<SaveItem> many_items(int replica_set) {
  std::vector<SaveItem> items;
  for (int i = 0; i < 40; ++i) {
    const std::int64_t rows = 1 + (i * 37) % 211;
    items.push_back({"t" + std::to_string(i) + "@master", Region{{{i, i + rows}, {3, 80}}}, 4, 0, 1,
                     replica_set});
  }
  items.push_back({"scalar@counter", Region{}, 8, 0, 1, replica_set});
  items.push_back({"empty@master", Region{{{4, 4}, {0, 9}}}, 4, 0, 1, replica_set});
  return items;
}

TEST(SavePlan, HoldersTogetherWriteEachRowOnce) {
  for (const int set : {-1, 3}) {
    for (const int replicas : {1, 2, 3, 5}) {
      const auto items = many_items(set);
      std::map<std::pair<std::size_t, std::int64_t>, int> written;
      std::map<std::size_t, int> scalars;
      for (const auto& plan : plans(items, replicas)) {
        for (const SavePiece& p : plan) {
          ASSERT_FALSE(p.region.empty());
          if (p.region.dims.empty()) {
            ++scalars[p.item];
            continue;
          }
          EXPECT_EQ(p.region.dims[1], items[p.item].region.dims[1]);
          for (auto r = p.region.dims[0].begin; r < p.region.dims[0].end; ++r) {
            ++written[{p.item, r}];
          }
        }
      }
      std::size_t rows = 0;
      for (const SaveItem& item : items) {
        if (!item.region.dims.empty()) rows += static_cast<std::size_t>(item.region.dims[0].size());
      }
      EXPECT_EQ(written.size(), rows);
      for (const auto& [row, times] : written) EXPECT_EQ(times, 1);
      EXPECT_EQ(scalars.size(), 1u);
      EXPECT_EQ(scalars.begin()->second, 1);
    }
  }
}

TEST(SavePlan, LoadsOfASetAreEven) {
  const auto items = many_items(3);
  std::vector<std::int64_t> loads;
  for (const auto& plan : plans(items, 4)) loads.push_back(bytes_of(plan, items));
  const auto [least, most] = std::minmax_element(loads.begin(), loads.end());
  EXPECT_LT(static_cast<double>(*most), 1.05 * static_cast<double>(*least));
}

TEST(SavePlan, LargeRegionsAreCutAndTheLongPartsTurn) {
  std::vector<SaveItem> items;
  for (int i = 0; i < 30; ++i) {
    items.push_back({"w" + std::to_string(i), Region{{{0, 5}, {0, 1 << 14}}}, 4, 0, 1, 0});
  }
  std::vector<std::int64_t> loads;
  for (const auto& plan : plans(items, 4)) {
    EXPECT_EQ(plan.size(), items.size());
    loads.push_back(bytes_of(plan, items));
  }
  // Always giving the fifth row to the first holder would make it 60 rows against 30.
  const auto [least, most] = std::minmax_element(loads.begin(), loads.end());
  EXPECT_LT(*most, 2 * *least);
}

/// Ranks whose other lists differ still agree about the items of a set that they share.
TEST(SavePlan, DependsOnTheSharedSetAlone) {
  const auto shared = many_items(7);
  std::vector<std::int64_t> written(shared.size());
  for (int r = 0; r < 2; ++r) {
    std::vector<SaveItem> items;
    for (int extra = 0; extra < 3 + r; ++extra) {
      items.push_back(
          {"own" + std::to_string(extra), Region{{{0, 9 + 31 * r}, {0, 7}}}, 4, 0, 2, 8});
    }
    const std::size_t first = items.size();
    for (SaveItem item : shared) {
      item.replica = r;
      item.replicas = 2;
      items.push_back(item);
    }
    for (const SavePiece& p : plan_save(items)) {
      if (p.item >= first) written[p.item - first] += p.region.elements();
    }
  }
  for (std::size_t i = 0; i < shared.size(); ++i) {
    EXPECT_EQ(written[i], shared[i].region.elements()) << shared[i].key;
  }
}

TEST(SavePlan, LongRegionsAreCutIntoPiecesThatAReaderCanCheckAlone) {
  constexpr std::int64_t kMiB = 1 << 20;
  // Rows of 1 MiB, of more than a piece, and a long vector.
  const std::vector<SaveItem> items = {{"a@master", Region{{{3, 103}, {0, kMiB / 4}}}, 4},
                                       {"b@master", Region{{{0, 2}, {0, 5 * kMiB}}}, 4},
                                       {"c@master", Region{{{0, 9 * kMiB}}}, 4}};
  std::vector<std::int64_t> next = {3, 0, 0};
  for (const SavePiece& piece : plan_save(items)) {
    const Range rows = piece.region.dims[0];
    EXPECT_EQ(rows.begin, next[piece.item]) << "in order, without a gap";
    next[piece.item] = rows.end;
    EXPECT_TRUE(piece.region.elements() * 4 <= kSavePieceBytes || rows.size() == 1);
  }
  EXPECT_EQ(next, (std::vector<std::int64_t>{103, 2, 9 * kMiB}));
  EXPECT_EQ(plan_save(items).size(), 7u + 2u + 3u);
}

}  // namespace
}  // namespace fourfold
