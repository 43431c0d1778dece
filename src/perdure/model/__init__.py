"""The vocabulary of Perdure: frozen values and pure rules, one noun a file. Imports nothing of ours."""
