#include "tests/threads/short_memory.h"

#include <cstdlib>
#include <new>

namespace fourfold {

thread_local int allocations_left = -1;

}  // namespace fourfold

void* operator new(std::size_t size) {
  int& left = fourfold::allocations_left;
  if (left >= 0 && left-- == 0) throw std::bad_alloc();
  void* memory = std::malloc(size > 0 ? size : 1);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
