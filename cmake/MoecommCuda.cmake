# CUDA settings: which chips machine code is built for, and PTX for later ones.

find_package(CUDAToolkit REQUIRED)
set(MOECOMM_CUDA_ARCHITECTURES "80-real;90-real;100-real;120-real;120-virtual" CACHE STRING
  "GPU architectures to build for (carry a small bundle with 90-real)")
set(CMAKE_CUDA_ARCHITECTURES ${MOECOMM_CUDA_ARCHITECTURES})
set(CMAKE_CUDA_STANDARD 17)
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
