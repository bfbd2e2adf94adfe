/* Parallel loops of kernels, on the threads of torch. */
#ifndef HALIDE_BACKEND_PARALLEL_H
#define HALIDE_BACKEND_PARALLEL_H

#include "halide_abi.h"

int start_parallel(void);
void connect_torch(void);           /* find torch's OpenMP and thread count in this process */
const char *openmp_path(void);      /* "" where there is none */
int threads_follow_torch(void);     /* 1: at::get_num_threads was found */
int halide_do_par_for(void *user_context, halide_task_t task, int first, int count, uint8_t *closure);
extern unsigned fork_count;         /* number of forks between the loading process and this one */

#endif
