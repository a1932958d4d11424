#include <fcntl.h>
#include <liburing.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <thread>

#include "base/check.h"
#include "ckpt/direct_writer.h"
#include "ckpt/fs.h"

namespace fourfold {
namespace {

constexpr unsigned kRequests = 4;  ///< In flight at a time.
constexpr std::size_t kBlockBytes = 8 << 20;

class UringWriter final : public DirectWriter {
 public:
  static std::unique_ptr<DirectWriter> make(int fd) {
    auto writer = std::unique_ptr<UringWriter>(new UringWriter(fd));
    // Old kernels, and containers that forbid it, say no here.
    if (::io_uring_queue_init(kRequests, &writer->ring_, 0) != 0) return nullptr;
    writer->open_ = true;
    return writer;
  }
  ~UringWriter() override {
    if (open_) ::io_uring_queue_exit(&ring_);
  }

  int write(const std::byte* data, std::size_t size, std::int64_t offset) override {
    const int flags = ::fcntl(fd_, F_GETFL);
    if (flags < 0 || ::fcntl(fd_, F_SETFL, flags | O_DIRECT) != 0) return EINVAL;
    const int failed = write_all(data, size, offset);
    // What comes after, the odd end of a file, is written plainly.
    ::fcntl(fd_, F_SETFL, flags);
    return failed;
  }

 private:
  /// What a request has still to write.
  struct Request {
    const std::byte* data = nullptr;
    std::size_t size = 0;
    std::int64_t offset = 0;
  };

  explicit UringWriter(int fd) : fd_(fd) {}

  /// While a request is in flight the kernel reads the memory: nothing returns before all are back.
  int write_all(const std::byte* data, std::size_t size, std::int64_t offset) {
    failed_ = 0;
    std::size_t given = 0;
    for (Request& request : requests_) {
      if (take(request, data, size, offset, given)) queue(request);
    }
    while (true) {
      submit_queued();
      if (in_flight_ == 0 && (queued_ == 0 || failed_ != 0)) return failed_;
      if (in_flight_ == 0) continue;
      Request& request = wait_for_one();
      if (failed_ != 0) continue;
      if (request.size > 0 || take(request, data, size, offset, given)) queue(request);
    }
  }

  /// The next block of the whole; false where there is none.
  static bool take(Request& request, const std::byte* data, std::size_t size, std::int64_t offset,
                   std::size_t& given) {
    if (given == size) return false;
    const std::size_t n = std::min(kBlockBytes, size - given);
    request = {data + given, n, offset + static_cast<std::int64_t>(given)};
    given += n;
    return true;
  }

  void queue(Request& request) {
    io_uring_sqe* entry = ::io_uring_get_sqe(&ring_);  // There is one for each request.
    ::io_uring_prep_write(entry, fd_, request.data, static_cast<unsigned>(request.size),
                          static_cast<std::uint64_t>(request.offset));
    ::io_uring_sqe_set_data(entry, &request);
    ++queued_;
  }

  /// A kernel that is short of memory may take fewer now, and the rest once some are back.
  void submit_queued() {
    if (queued_ == 0 || failed_ != 0) return;
    const int taken = ::io_uring_submit(&ring_);
    if (taken >= 0) {
      queued_ -= static_cast<unsigned>(taken);
      in_flight_ += static_cast<unsigned>(taken);
    } else if (taken == -EAGAIN || taken == -EBUSY || taken == -EINTR) {
      std::this_thread::yield();
    } else {
      failed_ = -taken;
    }
  }

  Request& wait_for_one() {
    io_uring_cqe* done = nullptr;
    int waited = -EINTR;
    while (waited == -EINTR || waited == -EAGAIN) waited = ::io_uring_wait_cqe(&ring_, &done);
    // Requests that nobody can wait for may still read the memory: there is no going on.
    FF_CHECK(waited == 0, "io_uring cannot wait: {}", std::strerror(-waited));
    auto& request = *static_cast<Request*>(::io_uring_cqe_get_data(done));
    const int result = done->res;
    ::io_uring_cqe_seen(&ring_, done);
    --in_flight_;
    advance(request, result);
    return request;
  }

  /// A write may be cut short; one that ends between blocks cannot go on directly.
  void advance(Request& request, int result) {
    if (result > 0 && static_cast<std::size_t>(result) % kDirectAlignment == 0) {
      request.data += result;
      request.size -= static_cast<std::size_t>(result);
      request.offset += result;
    } else if (result != -EINTR && result != -EAGAIN && failed_ == 0) {
      failed_ = result < 0 ? -result : EINVAL;
    }
  }

  int fd_;
  bool open_ = false;
  io_uring ring_{};
  std::array<Request, kRequests> requests_{};
  unsigned queued_ = 0;     ///< Not yet with the kernel.
  unsigned in_flight_ = 0;  ///< With the kernel.
  int failed_ = 0;          ///< The first errno.
};

}  // namespace

std::unique_ptr<DirectWriter> DirectWriter::make(int file_descriptor) {
  return UringWriter::make(file_descriptor);
}

}  // namespace fourfold
