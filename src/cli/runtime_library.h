#pragma once

#include <string>

namespace fourfold::cli {

/// The address of a function of libfourfold.so, which is opened on first use: loading LibTorch
/// takes half a second that `--help` need not wait for. Throws an Error (kInternal) where it cannot
/// be loaded.
void* runtime_symbol(const std::string& name);

/// Calls `int NAME(const Options*)` of the runtime library. What it throws is reported there.
template <class Options>
int call_runtime(const std::string& name, const Options& options) {
  using Entry = int (*)(const Options*);
  return reinterpret_cast<Entry>(runtime_symbol(name))(&options);
}

}  // namespace fourfold::cli
