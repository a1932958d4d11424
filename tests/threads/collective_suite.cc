#include "tests/threads/collective_suite.h"

#include <algorithm>
#include <chrono>
#include <numeric>

#include "tests/threads/suite_data.h"

namespace fourfold {
namespace {

using namespace suite;
using Counts = std::vector<std::int64_t>;

std::int64_t sum(const Counts& counts, int upto) {
  return std::accumulate(counts.begin(), counts.begin() + upto, std::int64_t{0});
}

/// The suite on one communicator. Every check is collective.
class Suite {
 public:
  /// `ranks` are what the data of the group's ranks are made from: their world ranks.
  Suite(Communicator& comm, std::vector<int> ranks, std::int64_t longest)
      : comm_(comm), ranks_(std::move(ranks)), rank_(comm.rank()), size_(comm.size()) {
    for (const std::int64_t n : {0, 1, 3, 7, size_ - 1, size_, size_ + 1, 1000, 65537}) {
      if (n <= longest) lengths_.push_back(n);
    }
  }

  std::uint32_t checksum() const { return checksum_; }

  void all_reduce(DType dtype, ReduceOp op, std::int64_t n, Lane lane = Lane::kCaller) {
    const int salt = next_salt();
    Data data = make_data(dtype, ranks_[rank_], n, salt);
    comm_.all_reduce({data.data(), n, dtype}, op, lane).wait_host();
    check(data, make_reduction(op, dtype, ranks_, n, salt),
          fmt::format("all_reduce of {} {}", n, dtype_name(dtype)));
  }

  /// Ten million elements; the sums are compared at every 101st.
  void large_all_reduce(DType dtype) {
    constexpr std::int64_t kCount = 10'000'000;
    constexpr std::int64_t kStride = 101;
    const int salt = next_salt();
    Data data(kCount * static_cast<std::size_t>(dtype_size(dtype)));
    const Data pattern = make_data(dtype, ranks_[rank_], 9973, salt);
    for (std::size_t at = 0; at < data.size(); at += pattern.size()) {
      std::copy_n(pattern.begin(), std::min(pattern.size(), data.size() - at), data.begin() + at);
    }
    comm_.all_reduce({data.data(), kCount, dtype}, ReduceOp::kSum).wait_host();
    const Data want = make_reduction(ReduceOp::kSum, dtype, ranks_, 9973, salt);
    const auto size = static_cast<std::size_t>(dtype_size(dtype));
    Data got_sample, want_sample;
    for (std::int64_t i = 0; i < kCount; i += i + kStride < kCount ? kStride : 1) {
      got_sample.insert(got_sample.end(), data.begin() + i * size, data.begin() + (i + 1) * size);
      const auto j = static_cast<std::size_t>(i % 9973) * size;
      want_sample.insert(want_sample.end(), want.begin() + j, want.begin() + j + size);
    }
    check(got_sample, want_sample, "all_reduce of ten million");
  }

  void all_gather(DType dtype, const Counts& counts, bool in_place, Lane lane = Lane::kCaller) {
    const int salt = next_salt();
    const std::int64_t total = sum(counts, size_);
    const auto size = static_cast<std::size_t>(dtype_size(dtype));
    const auto mine = static_cast<std::size_t>(sum(counts, rank_)) * size;
    const Data in = make_data(dtype, ranks_[rank_], counts[rank_], salt);
    Data out(static_cast<std::size_t>(total) * size);
    if (in_place) std::ranges::copy(in, out.begin() + mine);
    const void* from = in_place ? out.data() + mine : in.data();
    comm_.all_gather({from, counts[rank_], dtype}, {out.data(), total, dtype}, counts, lane)
        .wait_host();
    Data want;
    for (int r = 0; r < size_; ++r) {
      const Data part = make_data(dtype, ranks_[r], counts[r], salt);
      want.insert(want.end(), part.begin(), part.end());
    }
    check(out, want, fmt::format("all_gather of {} {}", total, dtype_name(dtype)));
  }

  void reduce_scatter(DType dtype, ReduceOp op, const Counts& counts, bool in_place,
                      Lane lane = Lane::kCaller) {
    const int salt = next_salt();
    const std::int64_t total = sum(counts, size_);
    const auto size = static_cast<std::size_t>(dtype_size(dtype));
    const auto mine = static_cast<std::size_t>(sum(counts, rank_)) * size;
    const auto length = static_cast<std::size_t>(counts[rank_]) * size;
    Data in = make_data(dtype, ranks_[rank_], total, salt);
    Data before = in;
    Data out(length);
    void* to = in_place ? in.data() + mine : out.data();
    comm_.reduce_scatter({in.data(), total, dtype}, {to, counts[rank_], dtype}, counts, op, lane)
        .wait_host();
    if (in_place) {
      std::copy_n(in.begin() + mine, length, out.begin());
      std::copy_n(in.begin() + mine, length, before.begin() + mine);
    }
    const std::string what = fmt::format("reduce_scatter of {} {}", total, dtype_name(dtype));
    check(out, make_reduction(op, dtype, ranks_, counts[rank_], salt, sum(counts, rank_)), what);
    check(in, before, what + ", the input");
  }

  /// Rank a sends (a·7 + b·5 + shift) mod modulus elements to rank b; modulus 1 sends nothing.
  void all_to_all(DType dtype, int shift, int modulus, Lane lane = Lane::kCaller) {
    const int salt = next_salt();
    auto count = [&](int from, int to) -> std::int64_t {
      return (from * 7 + to * 5 + shift) % modulus;
    };
    Counts send_counts, receive_counts;
    Data send, want;
    for (int r = 0; r < size_; ++r) {
      send_counts.push_back(count(rank_, r));
      receive_counts.push_back(count(r, rank_));
      const Data out = make_data(dtype, ranks_[rank_], send_counts.back(), salt, r * 1000);
      send.insert(send.end(), out.begin(), out.end());
      const Data in = make_data(dtype, ranks_[r], receive_counts.back(), salt, rank_ * 1000);
      want.insert(want.end(), in.begin(), in.end());
    }
    Data got(want.size());
    comm_
        .all_to_all({send.data(), sum(send_counts, size_), dtype}, send_counts,
                    {got.data(), sum(receive_counts, size_), dtype}, receive_counts, lane)
        .wait_host();
    check(got, want, fmt::format("all_to_all of {}", dtype_name(dtype)));
  }

  void broadcast(DType dtype, int root, std::int64_t n, Lane lane = Lane::kCaller) {
    const int salt = next_salt();
    Data data = make_data(dtype, ranks_[rank_], n, salt);
    comm_.broadcast({data.data(), n, dtype}, root, lane).wait_host();
    check(data, make_data(dtype, ranks_[root], n, salt),
          fmt::format("broadcast of {} {}", n, dtype_name(dtype)));
  }

  /// Each rank sends to the next one; even ranks send first.
  void ring(DType dtype, std::int64_t n, Lane lane = Lane::kCaller) {
    if (size_ == 1) return;
    const int salt = next_salt();
    const int next = (rank_ + 1) % size_, previous = (rank_ + size_ - 1) % size_;
    const Data send = make_data(dtype, ranks_[rank_], n, salt);
    Data got(send.size());
    auto give = [&] { comm_.send({send.data(), n, dtype}, next, lane).wait_host(); };
    auto take = [&] { comm_.receive({got.data(), n, dtype}, previous, lane).wait_host(); };
    if (rank_ % 2 == 0) {
      give();
      take();
    } else {
      take();
      give();
    }
    check(got, make_data(dtype, ranks_[previous], n, salt), "send and receive");
  }

  /// Every operation on every type.
  void run_all() {
    for (const DType dtype : kDTypes) {
      for (const ReduceOp op : kOps) {
        for (const std::int64_t n : lengths_) {
          // The longest one costs most: every type once, and every reduction once, are enough.
          if (n <= 1000 || op == ReduceOp::kSum || dtype == DType::kF32) all_reduce(dtype, op, n);
        }
        reduce_scatter(dtype, op, uneven(13), false);
        reduce_scatter(dtype, op, even(5), true);
      }
      for (const std::int64_t n : lengths_) {
        broadcast(dtype, static_cast<int>(n) % size_, n);
        ring(dtype, n);
        const std::int64_t each = n <= 1000 ? n : n / size_;
        all_gather(dtype, even(each), n % 2 == 0);
        reduce_scatter(dtype, ReduceOp::kSum, even(each), n % 2 == 0);
      }
      all_gather(dtype, uneven(1000), true);
      all_gather(dtype, only_last(17), false);
      reduce_scatter(dtype, ReduceOp::kAvg, uneven(2000), true);
      reduce_scatter(dtype, ReduceOp::kSum, only_last(17), false);
      all_to_all(dtype, 0, 11);
      all_to_all(dtype, 3, 997);
      all_to_all(dtype, 0, 1);
    }
    comm_.barrier().wait_host();
  }

  /// Operations in flight in all lanes at once, several in each, while the caller's lane works too.
  void mixed_lanes() {
    constexpr int kRounds = 6;
    constexpr std::int64_t kCount = 5000;
    const Counts counts = uneven(700);
    const std::int64_t total = sum(counts, size_);
    std::vector<Data> reduced, gathered, scattered, sent;
    std::vector<Work> works;
    const int salt = next_salt();
    for (int i = 0; i < kRounds; ++i) {
      reduced.push_back(make_data(DType::kF32, ranks_[rank_], kCount, salt + 3 * i));
      gathered.emplace_back(static_cast<std::size_t>(total) * 2);
      sent.push_back(make_data(DType::kBF16, ranks_[rank_], counts[rank_], salt + 3 * i + 1));
      scattered.push_back(make_data(DType::kF32, ranks_[rank_], total, salt + 3 * i + 2));
    }
    for (int i = 0; i < kRounds; ++i) {
      works.push_back(comm_.all_reduce({reduced[i].data(), kCount, DType::kF32}, ReduceOp::kSum,
                                       Lane::kReduce));
      works.push_back(comm_.all_gather({sent[i].data(), counts[rank_], DType::kBF16},
                                       {gathered[i].data(), total, DType::kBF16}, counts,
                                       Lane::kGather));
      works.push_back(comm_.reduce_scatter(
          {scattered[i].data(), total, DType::kF32},
          {scattered[i].data() + sum(counts, rank_) * 4, counts[rank_], DType::kF32}, counts,
          ReduceOp::kSum, Lane::kScatter));
      all_reduce(DType::kF32, ReduceOp::kSum, 333);
    }
    std::ranges::reverse(works);
    for (Work& work : works) work.wait_host();
    for (int i = 0; i < kRounds; ++i) check_mixed(i, salt, reduced, gathered, scattered, counts);
    salt_ += 3 * kRounds;
  }

  /// A background operation ends while its caller computes, without a call.
  void progress() {
    std::vector<float> data(1 << 18, 1.0f);
    const Buffer buffer{data.data(), static_cast<std::int64_t>(data.size()), DType::kF32};
    const Work work = comm_.all_reduce(buffer, ReduceOp::kSum, Lane::kReduce);
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!work.done()) {
      if (std::chrono::steady_clock::now() > limit) {
        throw std::runtime_error("an operation in a lane does not end by itself");
      }
    }
    comm_.barrier().wait_host();
  }

  int size() const { return size_; }

 private:
  void check_mixed(int i, int salt, const std::vector<Data>& reduced,
                   const std::vector<Data>& gathered, const std::vector<Data>& scattered,
                   const Counts& counts) {
    check(reduced[i], make_reduction(ReduceOp::kSum, DType::kF32, ranks_, 5000, salt + 3 * i),
          "all_reduce in its lane");
    Data want;
    for (int r = 0; r < size_; ++r) {
      const Data part = make_data(DType::kBF16, ranks_[r], counts[r], salt + 3 * i + 1);
      want.insert(want.end(), part.begin(), part.end());
    }
    check(gathered[i], want, "all_gather in its lane");
    const auto begin = static_cast<std::size_t>(sum(counts, rank_)) * 4;
    const auto length = static_cast<std::size_t>(counts[rank_]) * 4;
    check(Data(scattered[i].begin() + begin, scattered[i].begin() + begin + length),
          make_reduction(ReduceOp::kSum, DType::kF32, ranks_, counts[rank_], salt + 3 * i + 2,
                         sum(counts, rank_)),
          "reduce_scatter in its lane");
  }

  Counts even(std::int64_t n) const { return Counts(static_cast<std::size_t>(size_), n); }
  /// Different for each rank, some zero.
  Counts uneven(std::int64_t scale) const {
    Counts counts;
    for (int r = 0; r < size_; ++r) counts.push_back(r % 3 == 1 ? 0 : scale + 3 * r);
    return counts;
  }
  Counts only_last(std::int64_t n) const {
    Counts counts(static_cast<std::size_t>(size_), 0);
    counts.back() = n;
    return counts;
  }

  int next_salt() { return ++salt_; }
  void check(const Data& got, const Data& want, const std::string& what) {
    expect_equal(got, want,
                 fmt::format("rank {} of {} in {}: {}", rank_, size_, comm_.name(), what),
                 checksum_);
  }

  Communicator& comm_;
  const std::vector<int> ranks_;
  const int rank_, size_;
  Counts lengths_;
  int salt_ = 0;
  std::uint32_t checksum_ = 0;
};

/// A group and the suite on it, kept together while several groups are in use.
struct Group {
  Group(Communicator& world, const std::vector<int>& ranks, const std::string& name)
      : comm(world.subgroup(ranks, name)), suite(*comm, ranks, 100) {}
  std::unique_ptr<Communicator> comm;
  Suite suite;
};

/// Groups that overlap, of all sizes and orders, made by their members only and used in turns.
std::uint32_t subgroups(Communicator& world) {
  const int n = world.size(), me = world.rank();
  std::vector<Group> groups;
  auto add = [&](const std::vector<int>& ranks, const std::string& name) {
    if (std::ranges::find(ranks, me) != ranks.end()) groups.emplace_back(world, ranks, name);
  };
  add(range(0, n), "all");
  add(range(me % 2, n, 2), me % 2 == 0 ? "even" : "odd");
  add({me}, "self");
  add(range(0, (n + 1) / 2), "lower half");
  std::vector<int> backwards = range(0, n);
  std::ranges::reverse(backwards);
  add(backwards, "backwards");
  add(range(0, n), "all");  // The same ranks and name again: another group.
  add(range(n / 2, n), "upper half");
  std::uint32_t checksum = 0;
  for (int round = 0; round < 3; ++round) {
    for (Group& g : groups) {
      g.suite.all_reduce(DType::kF32, ReduceOp::kSum, 100 + round);
      g.suite.broadcast(DType::kI64, g.suite.size() - 1, 40);
      g.suite.ring(DType::kBF16, 31);
    }
  }
  for (Group& g : groups) {
    g.suite.mixed_lanes();
    checksum = checksum * 31 + g.suite.checksum();
  }
  return checksum;
}

std::uint32_t splits(Communicator& world) {
  const int me = world.rank(), n = world.size();
  const auto part = world.split(me % 3, -me, "third");  // Descending rank in each.
  std::vector<int> ranks;
  for (int r = n - 1; r >= 0; --r) {
    if (r % 3 == me % 3) ranks.push_back(r);
  }
  Suite suite(*part, ranks, 10);
  suite.all_reduce(DType::kF32, ReduceOp::kSum, 1000);
  suite.all_gather(DType::kI32, std::vector<std::int64_t>(ranks.size(), 3), false);
  // A split of a split, with equal keys.
  const auto again = part->split(part->rank() / 2, 0, "pair");
  std::vector<int> pair;
  for (int i = part->rank() / 2 * 2; i < std::min<int>(part->rank() / 2 * 2 + 2, part->size());
       ++i) {
    pair.push_back(ranks[static_cast<std::size_t>(i)]);
  }
  Suite pair_suite(*again, pair, 10);
  pair_suite.all_reduce(DType::kBF16, ReduceOp::kAvg, 77);
  return suite.checksum() * 31 + pair_suite.checksum();
}

}  // namespace

std::uint32_t run_collective_suite(Communicator& world, const SuiteOptions& options) {
  Suite suite(world, range(0, world.size()), options.longest);
  suite.run_all();
  suite.mixed_lanes();
  suite.progress();
  if (options.large) {
    suite.large_all_reduce(DType::kF32);
    suite.large_all_reduce(DType::kBF16);
  }
  std::uint32_t checksum = suite.checksum();
  checksum = checksum * 31 + subgroups(world);
  checksum = checksum * 31 + splits(world);
  lanes_apart(world);
  many_groups(world);
  world.barrier().wait_host();
  return checksum;
}

}  // namespace fourfold
