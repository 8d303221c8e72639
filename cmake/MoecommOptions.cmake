# Options, compiler flags and output folders of the whole build.

option(MOECOMM_WERROR "Treat warnings as errors (the developer presets turn it on)" OFF)
option(MOECOMM_FAULT_INJECTION "Compile in the test hooks that inject faults; never in a release" OFF)
option(MOECOMM_FUZZ "Build the libFuzzer targets (needs clang)" OFF)
set(MOECOMM_CUDA AUTO CACHE STRING "Build the cuda backend: AUTO (when nvcc is there), ON or OFF")
set_property(CACHE MOECOMM_CUDA PROPERTY STRINGS AUTO ON OFF)
set(MOECOMM_SANITIZE "" CACHE STRING "Sanitizers to build with, e.g. address,undefined or thread")

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()

set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)

set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)

# An installed tree may be copied anywhere: everything finds its libraries beside itself.
set(CMAKE_INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")

# Flags of every C target of ours. -ffp-contract=off: the numerics promise exact operations.
add_library(moecomm_flags INTERFACE)
target_include_directories(moecomm_flags INTERFACE ${CMAKE_SOURCE_DIR})
target_compile_definitions(moecomm_flags INTERFACE _GNU_SOURCE)
target_compile_options(moecomm_flags INTERFACE
  $<$<COMPILE_LANGUAGE:C>:-Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes
    -Wpointer-arith -Wvla -Wno-missing-field-initializers -ffp-contract=off
    -fno-strict-aliasing -fstack-protector-strong>)
if(MOECOMM_WERROR)
  target_compile_options(moecomm_flags INTERFACE $<$<COMPILE_LANGUAGE:C>:-Werror>)
endif()
if(MOECOMM_FAULT_INJECTION)
  target_compile_definitions(moecomm_flags INTERFACE MC_FAULT_INJECTION)
endif()
if(MOECOMM_SANITIZE)
  add_compile_options($<$<COMPILE_LANGUAGE:C>:-fsanitize=${MOECOMM_SANITIZE}>
    $<$<COMPILE_LANGUAGE:C>:-fno-omit-frame-pointer> $<$<COMPILE_LANGUAGE:C>:-fno-sanitize-recover=all>)
  add_link_options(-fsanitize=${MOECOMM_SANITIZE})
endif()
if(MOECOMM_FUZZ)
  add_compile_options($<$<COMPILE_LANGUAGE:C>:-fsanitize=fuzzer-no-link>)
endif()
