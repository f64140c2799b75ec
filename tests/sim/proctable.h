/* The rows that cuGetProcAddress looks in; build/sim.rs generates them from names.tsv. */
#ifndef SIM_PROCTABLE_H
#define SIM_PROCTABLE_H

struct proc_row {
    const char *base;      /* the name a program asks for */
    unsigned since;        /* first version it is answered at, 12080 for 12.8 */
    unsigned per_thread;   /* 2: the variant for per-thread default streams */
    void *symbol;          /* the exported function */
    void *inner;           /* a thunk that jumps there and equals no exported address */
};

/* Sorted by base, since, per_thread. */
extern const struct proc_row sim_proc_table[];
extern const unsigned sim_proc_rows;

#endif
