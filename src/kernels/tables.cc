#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <string>

#include "kernels/vector/tables.h"

namespace at {
// Of ATen/Version.h, whose other includes cost seconds.
std::string get_cpu_capability();
}  // namespace at

namespace fourfold::kernels {

// One fill() per vector source and capability.
#define FF_DECLARE_FILLS(capability)            \
  namespace capability {                        \
  void fill(ForBoth<NormTable>& table);         \
  void fill(ForBoth<ActivationTable>& table);   \
  void fill(ForBoth<DropoutTable>& table);      \
  void fill(ForBoth<ElementwiseTable>& table);  \
  void fill(CastTable& table);                  \
  void fill(ForBoth<CrossEntropyTable>& table); \
  void fill(OptimizerTable& table);             \
  void fill(ForBoth<ExactSumTable>& table);     \
  void fill(RandomTable& table);                \
  void fill(ForBoth<RowsTable>& table);         \
  void fill(FewRowsTable& table);               \
  void fill(ForBoth<AttentionTable>& table);    \
  inline KernelTables build() {                 \
    KernelTables tables;                        \
    fill(tables.norm);                          \
    fill(tables.activation);                    \
    fill(tables.dropout);                       \
    fill(tables.elementwise);                   \
    fill(tables.cast);                          \
    fill(tables.cross_entropy);                 \
    fill(tables.optimizer);                     \
    fill(tables.exact_sum);                     \
    fill(tables.random);                        \
    fill(tables.rows);                          \
    fill(tables.few_rows);                      \
    fill(tables.attention);                     \
    return tables;                              \
  }                                             \
  }  // namespace capability

FF_DECLARE_FILLS(DEFAULT)
#if defined(__x86_64__)
FF_DECLARE_FILLS(AVX2)
FF_DECLARE_FILLS(AVX512)
namespace AVX512 {
void fill_amx(AttentionTable<BFloat16>& table);
void fill_amx(TileProductTable& table);
}  // namespace AVX512

namespace {

// Whether the processor has AMX for bf16 and the system grants this process the tiles' state.
bool may_use_amx() {
  if (!__builtin_cpu_supports("avx512bf16")) return false;
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kAmxBf16 = 1u << 22, kAmxTile = 1u << 24;  // Leaf 7, EDX.
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  if ((d & kAmxBf16) == 0 || (d & kAmxTile) == 0) return false;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM.
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

}  // namespace
#endif

const KernelTables* tables_of(Capability capability) {
#if defined(__x86_64__)
  // A table is filled by code of its own instruction set: only once the CPU is known to have it.
  if (capability == Capability::kAmx) {
    static const bool runs = has_avx512() && may_use_amx();
    if (!runs) return nullptr;
    static const KernelTables amx = [] {
      KernelTables tables = AVX512::build();
      AVX512::fill_amx(tables.attention.bf16);
      AVX512::fill_amx(tables.tile_product);
      return tables;
    }();
    return &amx;
  }
  if (capability == Capability::kAvx512) {
    if (!has_avx512()) return nullptr;
    static const KernelTables avx512 = AVX512::build();
    return &avx512;
  }
  if (capability == Capability::kAvx2) {
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return nullptr;
    static const KernelTables avx2 = AVX2::build();
    return &avx2;
  }
#endif
  static const KernelTables portable = DEFAULT::build();
  return capability == Capability::kDefault ? &portable : nullptr;
}

const KernelTables& tables() {
  static const KernelTables* const chosen = [] {
    const std::string name = at::get_cpu_capability();
    const KernelTables* best = nullptr;
    if (name == "AVX512") best = tables_of(Capability::kAmx);
    if (best == nullptr && name == "AVX512") best = tables_of(Capability::kAvx512);
    if (best == nullptr && name.starts_with("AVX")) best = tables_of(Capability::kAvx2);
    return best != nullptr ? best : tables_of(Capability::kDefault);
  }();
  return *chosen;
}

}  // namespace fourfold::kernels
