#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/strong_int.h"
#include "base/timeline.h"
#include "comm/buffer.h"
#include "comm/work.h"

namespace fourfold {

enum class ReduceOp : std::uint8_t { kSum, kMax, kMin, kAvg };

/// Who runs an operation. kCaller: the calling thread, before the call returns. The others run on
/// while the caller computes. Every group (by its name) has lanes of its own, with a thread each
/// once they are used; order inside a lane is program order, and lanes do not wait for each other.
enum class Lane : std::uint8_t { kCaller, kGather, kReduce, kScatter };
inline constexpr std::size_t kLaneKinds = 4;

/// How much is checked while communicating.
enum class CommCheck : std::uint8_t {
  kOff,
  kOn,  ///< Every operation: all ranks of the group call the same one, in the same order and step,
        ///< with sizes that fit.
};

struct EmulatedNetwork;

struct CommOptions {
  /// A wait longer than this is an Error that names who is missing. A lost peer is to be reported
  /// within 30 s, with time to tell the others.
  double timeout_seconds = 25;
  CommCheck check = CommCheck::kOn;
  int trace_length = 256;  ///< Operations kept in the trace ring of each rank.
  /// Null: operations take what they take; else they wait as long as that network would take.
  std::shared_ptr<const EmulatedNetwork> network = nullptr;
};

/// One rank's end of a group of ranks. All collectives are called by every rank of the group, in
/// the same order. Counts are elements. Sums (and averages) add in ascending rank in fp32 and round
/// once, so that all ranks get the same bits, whatever the backend; integers and f64 add in their
/// own type (integers wrap, their average is cut towards zero); a NaN wins max and min. Buffers of
/// an operation do not overlap unless said. Errors are Error of kind kCommunication, from the call
/// (kCaller) or from the Work. Works are waited for before the communicator dies.
///
/// A communicator belongs to one thread (its lanes' threads are its own business).
class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  /// What it is called in messages: the axes of the group.
  const std::string& name() const { return name_; }

  /// data of every rank := op over the ranks' data, element by element.
  Work all_reduce(Buffer data, ReduceOp op, Lane lane = Lane::kCaller);
  /// out := the ranks' inputs one after the other; counts[r] elements from rank r. `in` may be the
  /// rank's own slice of `out`.
  Work all_gather(ConstBuffer in, Buffer out, std::span<const std::int64_t> counts,
                  Lane lane = Lane::kCaller);
  /// out of rank r := op over the ranks' r-th slice of `in`, counts[r] elements. `out` may be the
  /// rank's own slice of `in`; the other slices of `in` are kept.
  Work reduce_scatter(ConstBuffer in, Buffer out, std::span<const std::int64_t> counts, ReduceOp op,
                      Lane lane = Lane::kCaller);
  /// send_counts[r] elements go to rank r, receive_counts[r] come from it; both buffers hold the
  /// ranks' parts one after the other. The counts must agree between each pair.
  Work all_to_all(ConstBuffer send, std::span<const std::int64_t> send_counts, Buffer receive,
                  std::span<const std::int64_t> receive_counts, Lane lane = Lane::kCaller);
  /// data of every rank := data of `root`.
  Work broadcast(Buffer data, int root, Lane lane = Lane::kCaller);
  /// `to` gets data by a receive of the same count in the same lane. A send may wait for its
  /// receive: two ranks that send to each other in one lane must not both send first.
  Work send(ConstBuffer data, int to, Lane lane = Lane::kCaller);
  Work receive(Buffer data, int from, Lane lane = Lane::kCaller);
  Work barrier(Lane lane = Lane::kCaller);

  /// The communicator of the given ranks of this one, of which the caller is one, in the given
  /// order and by the same name. Not collective: nothing is sent, each member calls it when it
  /// likes. Members that make several groups of the same ranks and name make them in the same
  /// order.
  std::unique_ptr<Communicator> subgroup(std::span<const int> ranks, std::string name);
  /// Groups by colour, ordered by key, then rank. Collective.
  std::unique_ptr<Communicator> split(int colour, int key, std::string name);

  /// The step that agreement checks and messages name; set by the trainer at each step's start on
  /// the world's communicator, for all groups made from it by this rank.
  virtual void set_step(Step step) = 0;
  /// Ends communication for all ranks of the world this group was made from: peers that wait, or
  /// will, get an Error with this reason. For a rank that cannot go on.
  virtual void abort(const std::string& reason) noexcept = 0;
  /// The last operations of this rank, oldest first, a line each: for incident reports.
  virtual std::vector<std::string> trace() const = 0;
  /// Of this rank, for all groups made from its world: operations and waits for them add themselves
  /// to it.
  virtual Timeline& timeline() = 0;

 protected:
  Communicator(int rank, int size, std::string name)
      : rank_(rank), size_(size), name_(std::move(name)) {}

 private:
  // What backends implement; the public calls have checked the arguments. A count or rank that is
  // wrong on this rank alone is a broken invariant, not an Error.
  virtual Work do_all_reduce(Buffer data, ReduceOp op, Lane lane) = 0;
  virtual Work do_all_gather(ConstBuffer in, Buffer out, std::span<const std::int64_t> counts,
                             Lane lane) = 0;
  virtual Work do_reduce_scatter(ConstBuffer in, Buffer out, std::span<const std::int64_t> counts,
                                 ReduceOp op, Lane lane) = 0;
  virtual Work do_all_to_all(ConstBuffer send, std::span<const std::int64_t> send_counts,
                             Buffer receive, std::span<const std::int64_t> receive_counts,
                             Lane lane) = 0;
  virtual Work do_broadcast(Buffer data, int root, Lane lane) = 0;
  virtual Work do_send(ConstBuffer data, int to, Lane lane) = 0;
  virtual Work do_receive(Buffer data, int from, Lane lane) = 0;
  virtual Work do_barrier(Lane lane) = 0;
  virtual std::unique_ptr<Communicator> do_subgroup(std::span<const int> ranks,
                                                    std::string name) = 0;

  int rank_;
  int size_;
  std::string name_;
};

/// The group of one.
std::unique_ptr<Communicator> make_solo(const CommOptions& options = {});

}  // namespace fourfold
