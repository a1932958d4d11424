#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace fourfold::kernels {

/// A reference to a callable that outlives the call: std::function without its allocation.
template <class Signature>
class FunctionRef;
template <class R, class... Args>
class FunctionRef<R(Args...)> {
 public:
  template <class F>
    requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef>)
  FunctionRef(F&& f)  // NOLINT: implicit
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(f)))),
        call_([](void* object, Args... args) -> R {
          return (*static_cast<std::remove_reference_t<F>*>(object))(args...);
        }) {}
  R operator()(Args... args) const { return call_(object_, args...); }

 private:
  void* object_;
  R (*call_)(void*, Args...);
};

/// Into how many parts `items` of `cost` elements each are cut for the calling thread's intra-op
/// threads: a function of these numbers alone, so that sums over parts keep their order.
std::int64_t part_count(std::int64_t items, std::int64_t cost);

/// Calls f(part, begin, end) for `parts` even ranges of [0, items), on the intra-op threads.
void for_parts(std::int64_t parts, std::int64_t items,
               FunctionRef<void(std::int64_t, std::int64_t, std::int64_t)> f);

/// Calls f(begin, end) for ranges of [0, items), each item costing about `cost` element steps.
inline void parallel_ranges(std::int64_t items, std::int64_t cost,
                            FunctionRef<void(std::int64_t, std::int64_t)> f) {
  for_parts(part_count(items, cost), items,
            [&](std::int64_t, std::int64_t begin, std::int64_t end) { f(begin, end); });
}

/// The same for a flat run of n elements, cut at multiples of 64 elements so that no two threads
/// share a cache line.
void parallel_elements(std::int64_t n, FunctionRef<void(std::int64_t, std::int64_t)> f);

/// Memory of floats for the length of a kernel, from LibTorch's CPU allocator (which may cache),
/// aligned to 64 bytes, not initialised.
class Scratch {
 public:
  explicit Scratch(std::int64_t floats);
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  float* data() const { return data_; }

 private:
  float* data_;
};

/// Runs f(begin, end, sums) over row ranges in parts, where `sums` are `width` zeroed floats of the
/// part's own, and adds the parts' sums to `target` in ascending order. With a null target `sums`
/// is null and nothing is added.
void with_row_sums(std::int64_t rows, std::int64_t cost, std::int64_t width, float* target,
                   FunctionRef<void(std::int64_t, std::int64_t, float*)> f);

}  // namespace fourfold::kernels
