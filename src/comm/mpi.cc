#include <mpi.h>

#include <fmt/core.h>

#include <array>
#include <cstring>
#include <exception>
#include <mutex>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "comm/message_communicator.h"
#include "comm/mpi_world.h"

namespace fourfold {
namespace {

/// Tags of messages: the lowest for notices, then one for each channel. Pairs of ranks go through
/// the operations of a channel in the same order, so nothing more is needed to tell messages apart.
constexpr int kNoticeTag = 0;
int tag_of(int channel) { return kNoticeTag + 1 + channel; }
static_assert(kNoticeTag + kChannels <= 32767, "MPI promises no more tags");
constexpr std::size_t kNoticeBytes = 1024;

void check_mpi(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  throw Error(ErrorKind::kCommunication, fmt::format("{}: {}", what, text.data()),
              "the MPI library reports it; see its own messages");
}

MPI_Request request_of(const Transport::Request& request) {
  static_assert(sizeof(MPI_Request) <= sizeof(request.handle));
  MPI_Request mpi;
  std::memcpy(&mpi, &request.handle, sizeof(mpi));
  return mpi;
}

Transport::Request wrap(MPI_Request mpi) {
  Transport::Request request;
  std::memcpy(&request.handle, &mpi, sizeof(mpi));
  request.active = true;
  return request;
}

/// Messages over MPI_COMM_WORLD.
class MpiTransport final : public Transport {
 public:
  MpiTransport();
  ~MpiTransport() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int ranks_here() const override { return ranks_here_; }
  std::int64_t max_bytes() const override { return std::int64_t{1} << 30; }

  Request start_send(const void* data, std::int64_t bytes, int to, int channel) override {
    const auto lock = serialize();
    MPI_Request request;
    check_mpi(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, to, tag_of(channel),
                        MPI_COMM_WORLD, &request),
              "MPI_Isend");
    return wrap(request);
  }

  Request start_receive(void* data, std::int64_t bytes, int from, int channel) override {
    const auto lock = serialize();
    MPI_Request request;
    check_mpi(MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, from, tag_of(channel),
                        MPI_COMM_WORLD, &request),
              "MPI_Irecv");
    return wrap(request);
  }

  bool test(Request& request, std::int64_t* bytes) override {
    const auto lock = serialize();
    MPI_Request mpi = request_of(request);
    MPI_Status status;
    int done = 0;
    check_mpi(MPI_Test(&mpi, &done, &status), "MPI_Test");
    if (done == 0) return false;
    request.active = false;
    int count = 0;
    check_mpi(MPI_Get_count(&status, MPI_BYTE, &count), "MPI_Get_count");
    *bytes = count;
    return true;
  }

  void abandon(Request& request) noexcept override {
    const auto lock = serialize();
    failed_ = true;
    MPI_Request mpi = request_of(request);
    MPI_Cancel(&mpi);  // Takes back a receive that nothing has matched; harmless otherwise.
    MPI_Request_free(&mpi);
    request.active = false;
  }

  void send_notice(const std::string& reason) noexcept override;
  std::optional<Notice> take_notice() override;

 private:
  /// Held around every MPI call where the library wants one at a time.
  std::unique_lock<std::mutex> serialize() {
    return multiple_ ? std::unique_lock<std::mutex>() : std::unique_lock(mutex_);
  }
  void initialize();
  void listen();

  int rank_ = 0, size_ = 1, ranks_here_ = 1;
  bool multiple_ = false;
  bool owns_mpi_ = false;  ///< Finalises it.
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
  std::mutex notice_mutex_;  ///< Guards what follows.
  MPI_Request notice_request_ = MPI_REQUEST_NULL;
  std::array<char, kNoticeBytes> notice_{};       ///< Received.
  std::array<char, kNoticeBytes> sent_notice_{};  ///< Stays while it is sent.
};

MpiTransport::MpiTransport() {
  initialize();
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size_), "MPI_Comm_size");
  MPI_Comm node;
  check_mpi(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &node),
            "MPI_Comm_split_type");
  check_mpi(MPI_Comm_size(node, &ranks_here_), "MPI_Comm_size");
  MPI_Comm_free(&node);
  listen();
}

void MpiTransport::initialize() {
  int initialized = 0, finalized = 0, level = MPI_THREAD_SINGLE;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  if (finalized != 0) {
    throw Error(ErrorKind::kCommunication, "MPI was already finalised in this process",
                "a process has one MPI world in its life");
  }
  if (initialized != 0) {
    MPI_Query_thread(&level);
  } else {
    check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level), "MPI_Init_thread");
    owns_mpi_ = true;
  }
  if (level < MPI_THREAD_SERIALIZED) {
    throw Error(ErrorKind::kCommunication, "the MPI library lets only the main thread communicate",
                "use one that gives MPI_THREAD_SERIALIZED or MPI_THREAD_MULTIPLE");
  }
  multiple_ = level == MPI_THREAD_MULTIPLE;
}

MpiTransport::~MpiTransport() {
  // Finalising waits for the other ranks, which a rank that failed, or is on its way out by an
  // exception, must not do.
  if (failed_.load() || std::uncaught_exceptions() > 0) return;
  MPI_Cancel(&notice_request_);
  MPI_Wait(&notice_request_, MPI_STATUS_IGNORE);
  if (owns_mpi_) MPI_Finalize();
}

void MpiTransport::listen() {
  check_mpi(MPI_Irecv(notice_.data(), kNoticeBytes, MPI_CHAR, MPI_ANY_SOURCE, kNoticeTag,
                      MPI_COMM_WORLD, &notice_request_),
            "MPI_Irecv");
}

void MpiTransport::send_notice(const std::string& reason) noexcept {
  const std::lock_guard notice_lock(notice_mutex_);
  const auto lock = serialize();
  failed_ = true;
  const std::size_t length = reason.copy(sent_notice_.data(), kNoticeBytes - 1);
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    MPI_Request request;
    if (MPI_Isend(sent_notice_.data(), static_cast<int>(length) + 1, MPI_CHAR, r, kNoticeTag,
                  MPI_COMM_WORLD, &request) == MPI_SUCCESS) {
      MPI_Request_free(&request);  // Small enough to be gone; nobody waits for it.
    }
  }
}

std::optional<Transport::Notice> MpiTransport::take_notice() {
  const std::unique_lock notice_lock(notice_mutex_, std::try_to_lock);
  if (!notice_lock) return std::nullopt;  // Another lane is looking.
  const auto lock = serialize();
  if (notice_request_ == MPI_REQUEST_NULL) return std::nullopt;
  int done = 0;
  MPI_Status status;
  check_mpi(MPI_Test(&notice_request_, &done, &status), "MPI_Test");
  if (done == 0) return std::nullopt;
  failed_ = true;
  notice_.back() = 0;
  return Notice{status.MPI_SOURCE, notice_.data()};
}

}  // namespace

bool mpi_available() { return true; }

std::string mpi_library() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  const std::string all(text.data());
  return all.substr(0, all.find_first_of(",\n"));
}

std::unique_ptr<Communicator> make_mpi_world(const CommOptions& options) {
  auto transport = std::make_unique<MpiTransport>();
  const int rank = transport->rank();
  std::vector<int> members(static_cast<std::size_t>(transport->size()));
  std::iota(members.begin(), members.end(), 0);
  auto world = std::make_shared<MessageWorld>(std::move(transport),
                                              std::make_shared<RankContext>(rank, options));
  return std::make_unique<MessageCommunicator>(rank, std::move(members), "world", std::move(world));
}

}  // namespace fourfold
