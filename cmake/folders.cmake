# One static library per folder of src, so that each folder builds and is tested alone; the shared
# libraries that users link are made of them whole.

# fourfold_folder(NAME LINK targets... [PRIVATE targets...])
function(fourfold_folder name)
  cmake_parse_arguments(ARG "" "" "LINK;PRIVATE" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${name}/*.cc)
  list(FILTER sources EXCLUDE REGEX "\\.(avx2|avx512|default)\\.cc$")
  foreach(choice IN LISTS FOURFOLD_EXCLUDED_SOURCES)
    list(REMOVE_ITEM sources ${PROJECT_SOURCE_DIR}/src/${choice})
  endforeach()
  if(sources)
    add_library(ff_${name} STATIC ${sources})
    target_link_libraries(ff_${name} PUBLIC fourfold_options ${ARG_LINK} PRIVATE ${ARG_PRIVATE})
  else()  # A folder of headers only.
    add_library(ff_${name} INTERFACE)
    target_link_libraries(ff_${name} INTERFACE fourfold_options ${ARG_LINK} ${ARG_PRIVATE})
  endif()
endfunction()

# fourfold_library(NAME FOLDERS folders... LINK targets...): one shared library of whole folders.
function(fourfold_library name)
  cmake_parse_arguments(ARG "" "" "FOLDERS;LINK;PRIVATE" ${ARGN})
  set(objects "")
  foreach(folder IN LISTS ARG_FOLDERS)
    get_target_property(type ff_${folder} TYPE)
    if(type STREQUAL "STATIC_LIBRARY")
      list(APPEND objects $<TARGET_OBJECTS:ff_${folder}>)
    endif()
  endforeach()
  add_library(${name} SHARED ${objects})
  target_link_libraries(${name} PUBLIC fourfold_options ${ARG_LINK} PRIVATE ${ARG_PRIVATE})
  set_target_properties(${name} PROPERTIES LINKER_LANGUAGE CXX)
endfunction()
