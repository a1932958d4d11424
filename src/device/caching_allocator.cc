#include "device/caching_allocator.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/alignment.h>
#include <fmt/core.h>
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <vector>

#include "base/error.h"

namespace fourfold {
namespace {

constexpr std::size_t kSmallest = 256;                   // Bytes of class 0.
constexpr std::size_t kHugePage = std::size_t{2} << 20;  // Also the alignment of big blocks.
constexpr int kClassesPerOctave = 4;
constexpr int kOctaves = 38;  // Up to 64 TiB, more than any machine has.
constexpr int kClasses = kOctaves * kClassesPerOctave;

// A size class stands for sizes up to (4 + class % 4)·2^(class / 4)·64 bytes: at most 25 % more
// than asked for.
constexpr std::size_t class_bytes(int size_class) {
  const auto quarter = static_cast<std::size_t>(size_class % kClassesPerOctave);
  return (kClassesPerOctave + quarter) * (kSmallest / kClassesPerOctave)
         << (size_class / kClassesPerOctave);
}

int class_of(std::size_t bytes) {
  if (bytes <= kSmallest) return 0;
  const int octave = std::bit_width((bytes - 1) / kSmallest) - 1;
  int size_class = octave * kClassesPerOctave;
  while (size_class < kClasses && class_bytes(size_class) < bytes) ++size_class;
  return size_class;
}

// Free blocks of a class that a thread keeps to itself. More go to the shared lists, so that a
// thread that only frees what another allocates does not hoard.
constexpr std::size_t kKeptPerClass = 32;

using FreeLists = std::array<std::vector<void*>, kClasses>;

struct Counters {
  std::atomic<std::int64_t> in_use{0}, peak{0}, from_system{0}, system_allocations{0};

  void use(std::int64_t bytes) {
    const std::int64_t now = in_use.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    std::int64_t highest = peak.load(std::memory_order_relaxed);
    while (now > highest && !peak.compare_exchange_weak(highest, now, std::memory_order_relaxed)) {
    }
  }
};

// The class of a block stands in front of it, so that raw_deallocate() finds it from the pointer
// alone. Blocks below the huge page size have 64 bytes for it; those above a whole page, since
// their data starts at a huge page's boundary.
struct Header {
  void* system;  // What free() takes.
  int size_class;
  std::int64_t asked;  // Bytes of the live block.
};
static_assert(sizeof(Header) <= c10::gAlignment);

Header* header_of(void* data) { return reinterpret_cast<Header*>(data) - 1; }

class CachingAllocator;
CachingAllocator* installed_allocator();

class CachingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &deleter, c10::Device(c10::DeviceType::CPU)};
    void* data = take(class_of(bytes));
    header_of(data)->asked = static_cast<std::int64_t>(bytes);
    counters_.use(header_of(data)->asked);
    return {data, data, &deleter, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &deleter; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

  Counters& counters() { return counters_; }
  void release(FreeLists& lists);
  void release_cached();

 private:
  // The lists of a thread; what is left at its end goes to the shared ones.
  struct ThreadLists {
    explicit ThreadLists(CachingAllocator& allocator) : owner(allocator) {}
    ~ThreadLists();
    CachingAllocator& owner;
    FreeLists lists;
  };
  // Null once the thread's own lists have been destroyed.
  ThreadLists* own_lists();
  static bool& ended();

  static void deleter(void* data);
  void* take(int size_class);
  void give(void* data);
  void* from_system(int size_class);

  Counters counters_;
  std::mutex mutex_;  // Guards shared_.
  FreeLists shared_;
};

bool& CachingAllocator::ended() {
  static thread_local bool value = false;  // Trivial, hence usable until the thread is gone.
  return value;
}

CachingAllocator::ThreadLists::~ThreadLists() {
  ended() = true;
  const std::lock_guard lock(owner.mutex_);
  for (int i = 0; i < kClasses; ++i) {
    owner.shared_[i].insert(owner.shared_[i].end(), lists[i].begin(), lists[i].end());
  }
}

CachingAllocator::ThreadLists* CachingAllocator::own_lists() {
  if (ended()) return nullptr;
  static thread_local ThreadLists lists(*this);
  return &lists;
}

void* CachingAllocator::take(int size_class) {
  if (size_class >= kClasses) throw std::bad_alloc();
  void* data = nullptr;
  if (ThreadLists* own = own_lists(); own != nullptr && !own->lists[size_class].empty()) {
    data = own->lists[size_class].back();
    own->lists[size_class].pop_back();
  } else {
    const std::lock_guard lock(mutex_);
    if (!shared_[size_class].empty()) {
      data = shared_[size_class].back();
      shared_[size_class].pop_back();
    }
  }
  if (data == nullptr) data = from_system(size_class);
  return data;
}

void CachingAllocator::give(void* data) {
  const int size_class = header_of(data)->size_class;
  counters_.in_use.fetch_sub(header_of(data)->asked, std::memory_order_relaxed);
  if (ThreadLists* own = own_lists();
      own != nullptr && own->lists[size_class].size() < kKeptPerClass) {
    own->lists[size_class].push_back(data);
  } else {
    const std::lock_guard lock(mutex_);
    shared_[size_class].push_back(data);
  }
}

void* CachingAllocator::from_system(int size_class) {
  const std::size_t bytes = class_bytes(size_class);
  const bool big = bytes >= kHugePage;
  const std::size_t alignment = big ? kHugePage : c10::gAlignment;
  // Room for the header before the aligned data.
  const std::size_t total = bytes + 2 * alignment;
  void* system = std::malloc(total);
  if (system == nullptr) {
    throw Error(ErrorKind::kInternal, fmt::format("out of memory: a tensor of {} bytes", bytes),
                "a smaller micro_batch, more ranks or recompute need less memory");
  }
  const auto start = reinterpret_cast<std::uintptr_t>(system) + sizeof(Header);
  void* data = reinterpret_cast<void*>((start + alignment - 1) / alignment * alignment);
  if (big) ::madvise(data, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
  *header_of(data) = {system, size_class, 0};
  counters_.from_system.fetch_add(static_cast<std::int64_t>(bytes), std::memory_order_relaxed);
  counters_.system_allocations.fetch_add(1, std::memory_order_relaxed);
  return data;
}

void CachingAllocator::release(FreeLists& lists) {
  for (int i = 0; i < kClasses; ++i) {
    for (void* data : lists[i]) {
      std::free(header_of(data)->system);
      counters_.from_system.fetch_sub(static_cast<std::int64_t>(class_bytes(i)),
                                      std::memory_order_relaxed);
    }
    lists[i].clear();
  }
}

void CachingAllocator::release_cached() {
  if (ThreadLists* own = own_lists()) release(own->lists);
  const std::lock_guard lock(mutex_);
  release(shared_);
}

void CachingAllocator::deleter(void* data) {
  if (data != nullptr) installed_allocator()->give(data);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // A cache would hide what the sanitizer looks for.
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif
#else
constexpr bool kSanitized = false;
#endif

std::atomic<bool> installed{false};

// The one object that LibTorch's global allocator pointer forces on us; never destroyed, because
// tensors may outlive static objects.
CachingAllocator* installed_allocator() {
  static auto* const allocator = new CachingAllocator;
  return allocator;
}

}  // namespace

void install_caching_allocator() {
  if (kSanitized || installed.exchange(true)) return;
  constexpr std::uint8_t kPriority = 1;  // Above the built-in one's.
  c10::SetCPUAllocator(installed_allocator(), kPriority);
}

AllocatorStats allocator_stats() {
  if (!installed.load()) return {};
  const Counters& c = installed_allocator()->counters();
  return {c.in_use.load(), c.peak.load(), c.from_system.load(), c.system_allocations.load()};
}

void reset_allocator_peak() {
  if (!installed.load()) return;
  Counters& c = installed_allocator()->counters();
  c.peak.store(c.in_use.load());
}

void release_cached_memory() {
  if (installed.load()) installed_allocator()->release_cached();
}

}  // namespace fourfold
