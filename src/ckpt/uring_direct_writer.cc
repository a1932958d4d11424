#include <fcntl.h>
#include <liburing.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <exception>

#include "ckpt/direct_writer.h"
#include "ckpt/fs.h"

namespace fourfold {
namespace {

constexpr unsigned kRequests = 4;  ///< In flight at a time.
constexpr std::size_t kBlockBytes = 4 << 20;

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

  int write_all(const std::byte* data, std::size_t size, std::int64_t offset) {
    int failed = 0;
    std::size_t given = 0;
    unsigned in_flight = 0;
    for (Request& request : requests_) {
      if (take(request, data, size, offset, given)) in_flight += submit(request, failed);
    }
    while (in_flight > 0) {
      io_uring_cqe* done = nullptr;
      const int waited = ::io_uring_wait_cqe(&ring_, &done);
      if (waited == -EINTR) continue;
      // Requests that nobody can wait for may still read the memory: there is no going on.
      if (waited != 0) std::terminate();
      auto& request = *static_cast<Request*>(::io_uring_cqe_get_data(done));
      const int result = done->res;
      ::io_uring_cqe_seen(&ring_, done);
      --in_flight;
      advance(request, result, failed);
      if (failed != 0) continue;
      if (request.size > 0 || take(request, data, size, offset, given)) {
        in_flight += submit(request, failed);
      }
    }
    return failed;
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

  unsigned submit(Request& request, int& failed) {
    io_uring_sqe* entry = ::io_uring_get_sqe(&ring_);
    ::io_uring_prep_write(entry, fd_, request.data, static_cast<unsigned>(request.size),
                          static_cast<std::uint64_t>(request.offset));
    ::io_uring_sqe_set_data(entry, &request);
    const int submitted = ::io_uring_submit(&ring_);
    if (submitted == 1) return 1;
    failed = submitted < 0 ? -submitted : EIO;
    return 0;
  }

  /// A write may be cut short; one that ends between blocks cannot go on directly.
  static void advance(Request& request, int result, int& failed) {
    if (result > 0 && static_cast<std::size_t>(result) % kDirectAlignment == 0) {
      request.data += result;
      request.size -= static_cast<std::size_t>(result);
      request.offset += result;
    } else if (result != -EINTR && result != -EAGAIN && failed == 0) {
      failed = result < 0 ? -result : EINVAL;
    }
  }

  int fd_;
  bool open_ = false;
  io_uring ring_{};
  std::array<Request, kRequests> requests_{};
};

}  // namespace

std::unique_ptr<DirectWriter> DirectWriter::make(int file_descriptor) {
  return UringWriter::make(file_descriptor);
}

}  // namespace fourfold
