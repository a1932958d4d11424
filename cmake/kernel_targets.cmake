# The vector sources (src/kernels/vector/*.cc) are compiled once per capability of the CPU into
# ff_kernels, which picks one at run time. A generated file per pair includes the source, since one
# target cannot compile a file twice.
set(FOURFOLD_CAPABILITIES DEFAULT)
set(FOURFOLD_FLAGS_DEFAULT "")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64|amd64")
  list(APPEND FOURFOLD_CAPABILITIES AVX2 AVX512)
  set(FOURFOLD_FLAGS_AVX2 -DCPU_CAPABILITY_AVX2 -mavx2 -mfma)
  set(FOURFOLD_FLAGS_AVX512 -DCPU_CAPABILITY_AVX512 -mavx512f -mavx512bw -mavx512vl -mavx512dq
    -mavx2 -mfma -mprefer-vector-width=512)
endif()

# Speed is the point of these files, in every preset; no contraction: vec.h says why.
set(FOURFOLD_VECTOR_FLAGS -O3 -ffp-contract=off -fno-math-errno -fno-trapping-math)
if(FOURFOLD_SANITIZE)  # Instrumented and unrolled, attention alone would compile for minutes.
  list(REMOVE_ITEM FOURFOLD_VECTOR_FLAGS -O3)
  list(PREPEND FOURFOLD_VECTOR_FLAGS -O1)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # gcc 12 warns wrongly inside its own AVX-512 intrinsics.
  list(APPEND FOURFOLD_VECTOR_FLAGS -Wno-uninitialized -Wno-maybe-uninitialized)
endif()

file(GLOB vector_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/kernels/vector/*.cc)
foreach(source IN LISTS vector_sources)
  get_filename_component(name ${source} NAME_WE)
  set(capabilities ${FOURFOLD_CAPABILITIES})
  set(extra_flags "")
  if(name MATCHES "_amx$")  # An addition to the AVX-512 kernels of processors that have AMX.
    list(FILTER capabilities INCLUDE REGEX AVX512)
    set(extra_flags -mamx-tile -mamx-bf16 -mavx512bf16)
  endif()
  foreach(capability IN LISTS capabilities)
    set(wrapper ${PROJECT_BINARY_DIR}/generated/kernels/${name}_${capability}.cc)
    file(CONFIGURE OUTPUT ${wrapper} CONTENT "#include \"kernels/vector/${name}.cc\"\n")
    set(flags ${FOURFOLD_VECTOR_FLAGS} -DCPU_CAPABILITY=${capability}
      ${FOURFOLD_FLAGS_${capability}} ${extra_flags})
    set_source_files_properties(${wrapper} PROPERTIES COMPILE_OPTIONS "${flags}")
    target_sources(ff_kernels PRIVATE ${wrapper})
  endforeach()
endforeach()

# at::parallel_for runs serially in a file that is compiled without OpenMP. Such a file must use the
# OpenMP library that LibTorch uses: the one in its own folder where there is one.
set_source_files_properties(${PROJECT_SOURCE_DIR}/src/kernels/parallel.cc PROPERTIES
  COMPILE_OPTIONS -fopenmp)
file(GLOB torch_gomp ${TORCH_ROOT}/lib/libgomp*.so*)
if(torch_gomp)
  list(GET torch_gomp 0 torch_gomp)
  target_link_libraries(torch_plain INTERFACE ${torch_gomp})
else()
  find_package(OpenMP REQUIRED COMPONENTS CXX)
  target_link_libraries(torch_plain INTERFACE ${OpenMP_CXX_LIBRARIES})
endif()
