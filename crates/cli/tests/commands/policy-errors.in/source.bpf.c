// Never compiled: policy-errors.trycmd asks for source.bpf.o, which isn't there.
