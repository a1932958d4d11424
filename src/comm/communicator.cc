#include "comm/communicator.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"

namespace fourfold {
namespace {

void check_buffer(const ConstBuffer& b, const char* what) {
  FF_CHECK(b.count >= 0, "{} of {} elements", what, b.count);
  FF_CHECK(b.data != nullptr || b.count == 0, "{} of {} elements at null", what, b.count);
}

/// Checks one count per rank, none negative, and that they add up to `total`.
void check_counts(std::span<const std::int64_t> counts, int size, std::int64_t total,
                  const char* what) {
  FF_CHECK(static_cast<int>(counts.size()) == size, "{} {} counts for {} ranks", counts.size(),
           what, size);
  std::int64_t sum = 0;
  for (const std::int64_t c : counts) {
    FF_CHECK(c >= 0, "{} count {}", what, c);
    sum += c;
  }
  FF_CHECK(sum == total, "{} counts add up to {}, the buffer has {} elements", what, sum, total);
}

void copy(const ConstBuffer& from, const Buffer& to) {
  if (from.count > 0 && from.data != to.data) std::memcpy(to.data, from.data, from.bytes());
}

}  // namespace

Work Communicator::all_reduce(Buffer data, ReduceOp op, Lane lane) {
  check_buffer(data, "all_reduce");
  if (size_ == 1) return Work();
  return do_all_reduce(data, op, lane);
}

Work Communicator::all_gather(ConstBuffer in, Buffer out, std::span<const std::int64_t> counts,
                              Lane lane) {
  check_buffer(in, "all_gather input");
  check_buffer(out, "all_gather output");
  check_counts(counts, size_, out.count, "all_gather");
  FF_CHECK(in.count == counts[rank_], "rank {} gives {} elements, its count is {}", rank_, in.count,
           counts[rank_]);
  FF_CHECK(in.dtype == out.dtype, "all_gather of {} into {}", dtype_name(in.dtype),
           dtype_name(out.dtype));
  if (size_ == 1) {
    copy(in, out);
    return Work();
  }
  return do_all_gather(in, out, counts, lane);
}

Work Communicator::reduce_scatter(ConstBuffer in, Buffer out, std::span<const std::int64_t> counts,
                                  ReduceOp op, Lane lane) {
  check_buffer(in, "reduce_scatter input");
  check_buffer(out, "reduce_scatter output");
  check_counts(counts, size_, in.count, "reduce_scatter");
  FF_CHECK(out.count == counts[rank_], "rank {} takes {} elements, its count is {}", rank_,
           out.count, counts[rank_]);
  FF_CHECK(in.dtype == out.dtype, "reduce_scatter of {} into {}", dtype_name(in.dtype),
           dtype_name(out.dtype));
  if (size_ == 1) {
    copy(in, out);
    return Work();
  }
  return do_reduce_scatter(in, out, counts, op, lane);
}

Work Communicator::all_to_all(ConstBuffer send, std::span<const std::int64_t> send_counts,
                              Buffer receive, std::span<const std::int64_t> receive_counts,
                              Lane lane) {
  check_buffer(send, "all_to_all send buffer");
  check_buffer(receive, "all_to_all receive buffer");
  check_counts(send_counts, size_, send.count, "all_to_all send");
  check_counts(receive_counts, size_, receive.count, "all_to_all receive");
  FF_CHECK(send.dtype == receive.dtype, "all_to_all of {} into {}", dtype_name(send.dtype),
           dtype_name(receive.dtype));
  FF_CHECK(send_counts[rank_] == receive_counts[rank_], "rank {} sends itself {} and takes {}",
           rank_, send_counts[rank_], receive_counts[rank_]);
  if (size_ == 1) {
    copy(send, receive);
    return Work();
  }
  return do_all_to_all(send, send_counts, receive, receive_counts, lane);
}

Work Communicator::broadcast(Buffer data, int root, Lane lane) {
  check_buffer(data, "broadcast");
  FF_CHECK(root >= 0 && root < size_, "broadcast from rank {} of {}", root, size_);
  if (size_ == 1) return Work();
  return do_broadcast(data, root, lane);
}

Work Communicator::send(ConstBuffer data, int to, Lane lane) {
  check_buffer(data, "send");
  FF_CHECK(to >= 0 && to < size_ && to != rank_, "rank {} of {} sends to {}", rank_, size_, to);
  return do_send(data, to, lane);
}

Work Communicator::receive(Buffer data, int from, Lane lane) {
  check_buffer(data, "receive");
  FF_CHECK(from >= 0 && from < size_ && from != rank_, "rank {} of {} receives from {}", rank_,
           size_, from);
  return do_receive(data, from, lane);
}

Work Communicator::barrier(Lane lane) {
  if (size_ == 1) return Work();
  return do_barrier(lane);
}

std::unique_ptr<Communicator> Communicator::subgroup(std::span<const int> ranks, std::string name) {
  int mine = 0;
  std::vector<bool> seen(static_cast<std::size_t>(size_), false);
  for (const int r : ranks) {
    FF_CHECK(r >= 0 && r < size_, "subgroup {} has rank {} of {}", name, r, size_);
    FF_CHECK(!seen[static_cast<std::size_t>(r)], "subgroup {} has rank {} twice", name, r);
    seen[static_cast<std::size_t>(r)] = true;
    mine += r == rank_ ? 1 : 0;
  }
  FF_CHECK(mine == 1, "subgroup {} is made by rank {}, which is not in it", name, rank_);
  return do_subgroup(ranks, std::move(name));
}

std::unique_ptr<Communicator> Communicator::split(int colour, int key, std::string name) {
  const std::vector<std::int64_t> counts(static_cast<std::size_t>(size_), 2);
  const std::array<std::int64_t, 2> mine{colour, key};
  std::vector<std::int64_t> all(static_cast<std::size_t>(size_) * 2);
  all_gather({mine.data(), 2, DType::kI64},
             {all.data(), static_cast<std::int64_t>(all.size()), DType::kI64}, counts)
      .wait_host();
  std::vector<int> ranks;
  for (int r = 0; r < size_; ++r) {
    if (all[static_cast<std::size_t>(r) * 2] == colour) ranks.push_back(r);
  }
  std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) {
    return all[static_cast<std::size_t>(a) * 2 + 1] < all[static_cast<std::size_t>(b) * 2 + 1];
  });
  return subgroup(ranks, std::move(name));
}

}  // namespace fourfold
