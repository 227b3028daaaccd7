"""How isotropic are states around a norm and a sublayer?"""
